use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::Error;
use crate::transport::{
    Capabilities, Delivery, Outgoing, Receiver, SubscribeOptions, Subscription, Transport,
};
use crate::watched::Watched;

/// A transport whose receivers wait at a gate, and then take one message.
pub(super) struct Gated {
    inner: Watched,
    gates: Gates,
}

impl Gated {
    pub(super) fn new(inner: Watched, gates: Gates) -> Self {
        Self { inner, gates }
    }
}

/// A gate for each queue of the worker.
#[derive(Debug, Clone, Default)]
pub(super) struct Gates {
    gates: Arc<Mutex<Vec<Gate>>>,
}

#[derive(Debug)]
struct Gate {
    queue: Arc<str>,
    open: Arc<Semaphore>,
}

impl Gates {
    pub(super) fn set(&self, queues: Vec<Arc<str>>) {
        *self.lock() = queues
            .into_iter()
            .map(|queue| Gate {
                queue,
                open: Arc::new(Semaphore::new(0)),
            })
            .collect();
    }

    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.lock()
            .iter()
            .map(|gate| Arc::clone(&gate.queue))
            .collect()
    }

    /// Lets one message of this queue through.
    pub(super) fn open(&self, queue: usize) {
        if let Some(gate) = self.lock().get(queue) {
            gate.open.add_permits(1);
        }
    }

    fn of(&self, queue: &str) -> Arc<Semaphore> {
        let gates = self.lock();
        let gate = gates.iter().find(|gate| *gate.queue == *queue);
        gate.map_or_else(
            || Arc::new(Semaphore::new(0)),
            |gate| Arc::clone(&gate.open),
        )
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Gate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Transport for Gated {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    async fn publish(&self, batch: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        self.inner.publish(batch).await
    }

    async fn subscribe(
        &self,
        queue: &str,
        options: SubscribeOptions,
    ) -> Result<Subscription, Error> {
        let subscription = self.inner.subscribe(queue, options).await?;
        Ok(Subscription {
            receiver: Box::new(GatedReceiver {
                inner: subscription.receiver,
                gate: self.gates.of(queue),
                through: false,
            }),
            settler: subscription.settler,
        })
    }
}

struct GatedReceiver {
    inner: Box<dyn Receiver>,
    gate: Arc<Semaphore>,
    /// Whether the gate was opened and nothing has come through yet; outlives a dropped call.
    through: bool,
}

#[async_trait]
impl Receiver for GatedReceiver {
    async fn receive(&mut self, _max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        if !self.through {
            let permit = self.gate.acquire().await;
            let permit = permit.map_err(|_| Error::refused("receive", "the harness is gone"))?;
            permit.forget();
            self.through = true;
        }
        let deliveries = self.inner.receive(1).await?;
        self.through = false;
        Ok(deliveries)
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        self.inner.close(within).await
    }
}
