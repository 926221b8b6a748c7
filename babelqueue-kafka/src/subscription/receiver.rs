use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Receiver};
use tokio::sync::oneshot;

use super::poll::Close;
use super::shared::Shared;
use crate::reinject::Companion;

/// How long the group may take to let go, and the last commits to be seen, beyond the time that the
/// deliveries get.
const LEAVING: Duration = Duration::from_secs(15);

/// The receiving half of a membership. Dropping it leaves the group in the background.
#[derive(Debug)]
pub(crate) struct GroupReceiver {
    shared: Arc<Shared>,
    close: Sender<Close>,
    /// The re-injector that runs beside.
    companion: Option<Companion>,
}

impl GroupReceiver {
    pub(crate) fn new(shared: Arc<Shared>, close: Sender<Close>) -> Self {
        Self {
            shared,
            close,
            companion: None,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The same with a re-injector that ends with it.
    pub(crate) fn beside(mut self, companion: Companion) -> Self {
        self.companion = Some(companion);
        self
    }

    async fn leave(&self, within: Duration) -> Result<(), Error> {
        let (left, leaves) = oneshot::channel();
        if self.close.send(Close { within, left }).is_err() {
            return Ok(()); // The thread has ended: there is nothing to leave.
        }
        self.shared.wake_poller();
        match tokio::time::timeout(within + LEAVING, leaves).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(Error::transient(
                "close",
                "some progress may not have been committed: what it held runs again",
            )),
            Ok(Err(_)) => Err(Error::transient("close", "the polling thread has panicked")),
            Err(_) => Err(Error::transient("close", "the group has not let go yet")),
        }
    }
}

#[async_trait]
impl Receiver for GroupReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        self.shared.receive(max).await
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        let companion = self.companion.take();
        let (left, ended) = tokio::join!(self.leave(within), async {
            match companion {
                Some(companion) => companion.end().await,
                None => Ok(()),
            }
        });
        left.and(ended)
    }
}

impl Drop for GroupReceiver {
    fn drop(&mut self) {
        // The thread sees the closed channel, once it looks.
        let (close, _) = std::sync::mpsc::channel();
        self.close = close;
        self.shared.wake_poller();
    }
}
