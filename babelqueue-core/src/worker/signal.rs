use super::StopRequest;

/// Waits for SIGTERM or SIGINT (Ctrl-C), as the future that [`run_until`](super::Worker::run_until)
/// takes: the first stops the worker in good order, a second one does not wait for its deadline
/// (contract §7.9).
///
/// Once this has been polled, the process no longer ends by itself on these signals.
pub async fn shutdown_signal() -> StopRequest {
    let mut signals = Signals::new();
    signals.next().await;
    StopRequest::with_force(async move { signals.next().await })
}

#[cfg(unix)]
struct Signals {
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind)
                .inspect_err(|error| tracing::error!(%error, ?kind, "cannot listen to a signal"))
                .ok()
        };
        Self {
            interrupt: listen(SignalKind::interrupt()),
            terminate: listen(SignalKind::terminate()),
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            biased;
            () = received(&mut self.interrupt) => {}
            () = received(&mut self.terminate) => {}
        }
    }
}

/// Waits for the signal; for ever where it cannot be listened to.
#[cfg(unix)]
async fn received(signal: &mut Option<tokio::signal::unix::Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Self {
        Self
    }

    async fn next(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "cannot listen to Ctrl-C");
            std::future::pending::<()>().await;
        }
    }
}
