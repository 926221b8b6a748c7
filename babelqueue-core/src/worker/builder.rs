use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::config::{Settings, warn_at_start};
use super::desk::Shared;
use super::routes::{Route, Routes};
use super::run::Run;
use super::{Status, StopRequest, Stopped};
use crate::Error;
use crate::clock::{Clock, SystemClock};
use crate::decide::{Policy, UnknownUrn};
use crate::flag::Flag;
use crate::handler::{
    Blocking, Failure, Function, Handler, Incoming, Layer, Outcome, State, Surroundings,
};
use crate::headers::trim_blanks;
use crate::random::Random;
use crate::retry::Retry;
use crate::transport::Transport;
use crate::urn::Message;

/// A worker that is being set up; [`run_until`](Self::run_until) starts it.
///
/// Every default is the contract's (§7.1): one handler at a time, 3 deliveries without delay,
/// dead-lettering off, 30 seconds for the handlers at the stop.
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    transport: Arc<dyn Transport>,
    settings: Settings,
    routes: Vec<(String, Route)>,
    layers: Vec<Box<dyn Layer>>,
    state: State,
    clock: Arc<dyn Clock>,
    random: Random,
    status: watch::Sender<Status>,
}

impl Worker {
    /// A worker over `transport`.
    pub fn new(transport: impl Transport) -> Self {
        Self::shared(Arc::new(transport))
    }

    /// The same over a transport whose type is erased already.
    pub fn shared(transport: Arc<dyn Transport>) -> Self {
        Self {
            transport,
            settings: Settings::default(),
            routes: Vec::new(),
            layers: Vec::new(),
            state: State::default(),
            clock: Arc::new(SystemClock),
            random: Random::from_entropy(),
            status: watch::Sender::new(Status::default()),
        }
    }

    // Queues and policies.

    /// Consumes this queue too, under the worker's own policy. `default` where none is named.
    pub fn queue(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.queues.push((name.into(), None));
        self
    }

    /// Consumes this queue too, under a policy of its own.
    pub fn queue_with(mut self, name: impl Into<Arc<str>>, policy: Policy) -> Self {
        self.settings.queues.push((name.into(), Some(policy)));
        self
    }

    /// The policy of all queues that have none of their own, as a whole.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// How often and how late a failed message is tried again: 3 deliveries without delay by default.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.settings.policy.retry = retry;
        self
    }

    /// Whether what has used up its deliveries goes to the dead-letter queue, rather than being
    /// dropped: off by default.
    pub fn dead_letter(mut self, on: bool) -> Self {
        self.settings.policy.dead_letter = on;
        self
    }

    /// What becomes of a message whose URN no handler takes: a failure by default.
    pub fn on_unknown_urn(mut self, strategy: UnknownUrn) -> Self {
        self.settings.policy.on_unknown_urn = strategy;
        self
    }

    // How it runs.

    /// How many handlers run at once, over all queues: 1 by default.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers;
        self
    }

    /// How many deliveries of each queue the worker holds, running ones included, in place of what
    /// its broker makes sensible. At least the concurrency. Where giving a message back counts as an
    /// attempt (SQS, Service Bus), more than the concurrency costs attempts at each stop.
    pub fn prefetch(mut self, deliveries: usize) -> Self {
        self.settings.prefetch = Some(deliveries);
        self
    }

    /// How long running handlers may go on after the stop: 30 seconds by default. Then they are
    /// aborted, and their messages given back.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.settings.shutdown_timeout = timeout;
        self
    }

    /// How long, once no handler runs any more, the last settlements and the leaving may take: 5
    /// seconds by default.
    pub fn flush_timeout(mut self, timeout: Duration) -> Self {
        self.settings.flush_timeout = timeout;
        self
    }

    /// How long to wait before receiving again after a failure of the broker's or a settlement that
    /// failed: `first` (100 ms by default), doubled with each failure in a row up to `cap` (10 s),
    /// and spread over its upper half.
    pub fn reconnect(mut self, first: Duration, cap: Duration) -> Self {
        self.settings.reconnect_first = first;
        self.settings.reconnect_cap = cap;
        self
    }

    /// Reads wall time (`dead_letter.failed_at`) from this clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Draws jitter from this source, so that a simulated run replays.
    pub fn random(mut self, random: Random) -> Self {
        self.random = random;
        self
    }

    // Handlers.

    /// Gives every handler `value` to share ([`Incoming::state`]): at most one of each type, the last
    /// one counts.
    pub fn state<S: Send + Sync + 'static>(mut self, value: S) -> Self {
        self.state.insert(value);
        self
    }

    /// Wraps every handler of the worker, whether it was added before or after. The first layer is
    /// the outermost.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.push(Box::new(layer));
        self
    }

    /// Handles messages of type `T`. Blanks around its URN are left out, as where it is published
    /// (contract §5.2).
    pub fn handle<T, F, Fut, R>(self, handler: F) -> Self
    where
        T: Message + DeserializeOwned + 'static,
        F: Fn(Incoming<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Outcome>,
    {
        self.handle_urn(trim_blanks(T::URN), handler)
    }

    /// Handles messages of a URN that is known only at run time, compared byte for byte. `T` is what
    /// `data` is read into; [`serde_json::Value`] takes any.
    pub fn handle_urn<T, F, Fut, R>(self, urn: impl Into<String>, handler: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(Incoming<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Outcome>,
    {
        self.handler(urn, Function::new(handler))
    }

    /// Handles messages of type `T` with a function that blocks: on a thread of its own. At the
    /// stop's deadline one that still runs is reported, not given back ([`Blocking`]).
    pub fn handle_blocking<T, F, R>(self, handler: F) -> Self
    where
        T: Message + DeserializeOwned + 'static,
        F: Fn(Incoming<T>) -> Result<R, Failure> + Send + Sync + 'static,
        R: Into<Outcome>,
    {
        self.handle_blocking_urn(trim_blanks(T::URN), handler)
    }

    /// The same for a URN that is known only at run time.
    pub fn handle_blocking_urn<T, F, R>(self, urn: impl Into<String>, handler: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(Incoming<T>) -> Result<R, Failure> + Send + Sync + 'static,
        R: Into<Outcome>,
    {
        self.handler(urn, Blocking::new(handler))
    }

    /// Handles messages of this URN, untyped. The URN is compared byte for byte.
    pub fn handler(mut self, urn: impl Into<String>, handler: impl Handler) -> Self {
        self.routes.push((urn.into(), Route::new(handler)));
        self
    }

    // Running.

    /// The names of the queues that it will run over.
    #[cfg(feature = "harness")]
    pub(crate) fn queue_names(&self) -> Vec<Arc<str>> {
        let queues = self.settings.named_queues().into_iter();
        queues.map(|(name, _)| name).collect()
    }

    /// What the worker is doing, while it runs and after: to be asked for before it starts.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Runs until `stop` is ready; then lets the running handlers finish ([`shutdown_timeout`]),
    /// gives back the rest, and says how it ended.
    ///
    /// The loop runs in a task of its own. Dropping the returned future aborts it and every handler;
    /// what was unsettled comes back by the broker's own means.
    ///
    /// [`shutdown_timeout`]: Self::shutdown_timeout
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for settings that cannot be, before anything is started; later what no retry
    /// can mend: wrong credentials, a queue that is not there.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one without its timer. A transport's panic is passed on.
    pub async fn run_until<F>(self, stop: F) -> Result<Stopped, Error>
    where
        F: Future,
        F::Output: Into<StopRequest>,
    {
        let (stopping, forced) = (Arc::new(Flag::default()), Arc::new(Flag::default()));
        let run = self.start()?;
        let shared = Arc::clone(run.shared());
        let run = run.until(Arc::clone(&stopping), Arc::clone(&forced));
        let mut running = Spawned {
            run: tokio::spawn(run),
            shared,
        };
        let told = async {
            let request = stop.await.into();
            stopping.raise();
            request.forced().await;
            forced.raise();
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            biased;
            ended = &mut running.run => ended,
            () = told => unreachable!("it is pending"),
        };
        match ended {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(payload) => resume_unwind(payload),
                Err(error) => {
                    Err(Error::transient("run", "the runtime shut down").with_source(error))
                }
            },
        }
    }

    /// Runs until an error that no retry can mend, or until the returned future is dropped.
    ///
    /// # Errors
    ///
    /// As [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<Stopped, Error> {
        self.run_until(std::future::pending::<()>()).await
    }

    fn start(self) -> Result<Run, Error> {
        let capabilities = self.transport.capabilities();
        let plan = self.settings.plan(capabilities)?;
        let routes = Routes::new(self.routes, &self.layers)?;
        warn_at_start(&plan, &routes, capabilities);
        let shared = Shared {
            rules: capabilities.rules,
            routes,
            random: self.random,
            surroundings: Arc::new(Surroundings {
                state: self.state,
                clock: self.clock,
                stopping: Arc::default(),
            }),
            dropped: Flag::default(),
        };
        Ok(Run::new(
            self.transport,
            Arc::new(shared),
            plan,
            self.status,
        ))
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("broker", &self.transport.capabilities().broker)
            .field("settings", &self.settings)
            .field("layers", &self.layers.len())
            .finish_non_exhaustive()
    }
}

/// The task of a worker's loop, aborted when it is dropped.
struct Spawned {
    run: JoinHandle<Result<Stopped, Error>>,
    shared: Arc<Shared>,
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // The runtime takes the loop apart when it gets to it, and the loop the handlers' tasks.
        self.shared.dropped.raise();
        self.run.abort();
    }
}
