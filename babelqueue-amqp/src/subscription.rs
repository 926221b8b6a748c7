use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use babelqueue_core::Error;
use babelqueue_core::transport::{Delivery, Receiver, SubscribeOptions, Subscription};
use futures_util::StreamExt as _;
use lapin::Consumer;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::failure;
use crate::generation::{Generation, Origin};
use crate::settler::AmqpSettler;
use crate::transport::Shared;

/// Subscribes to `queue`: declares it, or checks that it is there, and begins to consume.
pub(crate) async fn open(
    shared: Arc<Shared>,
    queue: &str,
    options: SubscribeOptions,
) -> Result<Subscription, Error> {
    let queue: Arc<str> = queue.into();
    let mut receiver = AmqpReceiver {
        shared: shared.clone(),
        queue: queue.clone(),
        prefetch: u16::try_from(options.prefetch).unwrap_or(u16::MAX),
        live: None,
    };
    receiver.live = Some(receiver.consume().await?);
    Ok(Subscription {
        receiver: Box::new(receiver),
        settler: Arc::new(AmqpSettler::new(shared, queue)),
    })
}

/// Rises with every channel that is consumed from, in the whole program.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

struct AmqpReceiver {
    shared: Arc<Shared>,
    queue: Arc<str>,
    prefetch: u16,
    /// `None` after the connection was lost; the next receive makes a new one.
    live: Option<Live>,
}

/// A channel that is consumed from, and the task that takes in what comes.
struct Live {
    generation: Arc<Generation>,
    deliveries: mpsc::UnboundedReceiver<Arc<Delivery>>,
    /// Dropped or used, it makes the task cancel its consumer.
    stop: Option<oneshot::Sender<()>>,
    intake: JoinHandle<Option<lapin::Error>>,
}

#[async_trait]
impl Receiver for AmqpReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        loop {
            if self.live.is_none() {
                self.live = Some(self.consume().await?);
            }
            let Some(live) = &mut self.live else {
                continue;
            };
            let mut batch = Vec::new();
            if live.deliveries.recv_many(&mut batch, max).await == 0 {
                let ended = (&mut live.intake).await;
                self.live = None;
                return Err(self.lost(ended.ok().flatten()));
            }
            batch.retain(|delivery| !delivery.is_lost());
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
    }

    async fn close(&mut self, within: Duration) -> Result<(), Error> {
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        let generation = live.generation.clone();
        if timeout(within, live.wind_down()).await.is_err() {
            let queue = &*self.queue;
            tracing::warn!(
                queue,
                "deliveries were still out when the subscription closed"
            );
        }
        self.live = None;
        generation.lose();
        if !generation.channel().status().connected() {
            return Ok(());
        }
        // What is still out goes back with the channel.
        let closed = generation.channel().close(200, "OK".into());
        let context = format!("queue `{}`", self.queue);
        let closed = self.shared.consuming.within(closed).await;
        closed.map_err(|failure| failure.into_error("close", &context))
    }
}

impl AmqpReceiver {
    /// A new channel with our prefetch, the queue declared, and a consumer on it.
    async fn consume(&self) -> Result<Live, Error> {
        let link = &self.shared.consuming;
        let address = self.shared.config.address();
        let channel = link.channel().await;
        let channel = channel.map_err(|failure| failure.into_error("connect", &address))?;
        self.shared
            .topology
            .declare_on(&channel, &self.queue)
            .await?;
        let consumer = async {
            let qos = channel.basic_qos(self.prefetch, BasicQosOptions::default());
            link.within(qos).await?;
            let consumer = channel.basic_consume(
                self.queue.as_ref().into(),
                "".into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            );
            link.within(consumer).await
        };
        let context = format!("queue `{}`", self.queue);
        let consumer = consumer.await;
        let consumer = consumer.map_err(|failure| failure.into_error("subscribe", &context))?;
        Ok(Live::start(channel, consumer, self.queue.clone()))
    }

    fn lost(&self, cause: Option<lapin::Error>) -> Error {
        let context = format!("queue `{}`", self.queue);
        match cause {
            Some(error) => failure::running("receive", context, error),
            None => Error::transient(
                "receive",
                format!("{context}: the broker cancelled the consumer (was the queue deleted?)"),
            ),
        }
    }
}

impl Live {
    fn start(channel: lapin::Channel, consumer: Consumer, queue: Arc<str>) -> Self {
        let number = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let generation = Arc::new(Generation::new(number, channel));
        let (sender, deliveries) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let intake = Intake {
            generation: generation.clone(),
            consumer,
            queue,
            deliveries: sender,
        };
        Self {
            generation,
            deliveries,
            stop: Some(stop),
            intake: tokio::spawn(intake.run(stopped)),
        }
    }

    /// Takes no more, gives back what nobody has received, and waits for the rest.
    async fn wind_down(&mut self) {
        self.stop = None;
        let mut held = Vec::new();
        while let Some(delivery) = self.deliveries.recv().await {
            held.extend(delivery.native::<Origin>().map(|origin| origin.tag));
        }
        // An error means that the channel is gone, and everything goes back by itself.
        _ = self.generation.settle(&[], &held).await;
        self.generation.all_home().await;
    }
}

/// What was not received goes back at once; what was can still be settled.
impl Drop for Live {
    fn drop(&mut self) {
        self.deliveries.close();
        let mut held = Vec::new();
        while let Ok(delivery) = self.deliveries.try_recv() {
            held.extend(delivery.native::<Origin>().map(|origin| origin.tag));
        }
        self.generation.give_back_now(&held);
    }
}

/// Turns the client's messages into deliveries as they come, so that a lost connection is noticed
/// also while nobody receives.
struct Intake {
    generation: Arc<Generation>,
    consumer: Consumer,
    queue: Arc<str>,
    deliveries: mpsc::UnboundedSender<Arc<Delivery>>,
}

impl Intake {
    /// Runs until the consumer ends; gives the error, if that is what ended it.
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) -> Option<lapin::Error> {
        let mut stopping = false;
        loop {
            let message = tokio::select! {
                biased;
                _ = &mut stopped, if !stopping => {
                    stopping = true;
                    self.cancel().await;
                    continue;
                }
                message = self.consumer.next() => message,
            };
            match message {
                Some(Ok(message)) => self.take_in(message),
                Some(Err(error)) => {
                    self.lose(&error);
                    return Some(error);
                }
                None => {
                    if !stopping {
                        self.generation.lose();
                    }
                    return None;
                }
            }
        }
    }

    fn take_in(&self, message: lapin::message::Delivery) {
        let delivery = self.generation.give_out(&self.queue, message);
        if let Err(unwanted) = self.deliveries.send(delivery)
            && let Some(origin) = unwanted.0.native::<Origin>()
        {
            self.generation.give_back_now(&[origin.tag]);
        }
    }

    async fn cancel(&self) {
        let channel = self.generation.channel();
        let cancelled = channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default());
        // The stream tells what comes of it.
        _ = cancelled.await;
    }

    fn lose(&self, error: &lapin::Error) {
        let (queue, generation) = (&*self.queue, self.generation.number());
        tracing::warn!(queue, generation, %error, "the channel is gone, and what came over it");
        self.generation.lose();
    }
}
