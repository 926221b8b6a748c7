use std::collections::VecDeque;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::lease::Renewal;
use crate::transport::Delivery;

/// Where a delivery stands in its queue's [`Held`]. Never used twice: a late answer for one that
/// has ended finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    place: usize,
    /// The how-many-th delivery this is; also tells which of two came in first.
    number: u64,
}

impl Key {
    /// Which delivery of the queue it is, counted from the first that came in.
    pub(super) fn number(self) -> u64 {
        self.number
    }

    #[cfg(test)]
    pub(super) fn test(number: usize) -> Self {
        Self {
            place: number,
            number: number as u64,
        }
    }
}

/// A delivery that has neither been settled nor ended otherwise.
#[derive(Debug)]
pub(super) struct Entry {
    number: u64,
    pub(super) delivery: Arc<Delivery>,
    pub(super) renewal: Option<Renewal>,
    /// Its handler's task, while it runs.
    pub(super) task: Option<Running>,
    /// Whether its lane waits for it.
    pub(super) holds_lane: bool,
}

/// A handler's task. Dropping it aborts the handler; [`finished`](Self::finished) does not.
#[derive(Debug)]
pub(super) struct Running {
    task: Option<JoinHandle<()>>,
    /// Whether it has begun something that goes on even when the task is aborted.
    pub(super) blocking: bool,
    /// The deliveries that the task has besides, in the order in which it gets to them.
    pub(super) followers: VecDeque<Key>,
}

impl Running {
    pub(super) fn new(task: JoinHandle<()>, followers: VecDeque<Key>) -> Self {
        Self {
            task: Some(task),
            blocking: false,
            followers,
        }
    }

    pub(super) fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    /// It has ended; gives what it did not get to.
    pub(super) fn finished(mut self) -> VecDeque<Key> {
        self.task = None;
        std::mem::take(&mut self.followers)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Everything of a queue that is unsettled.
#[derive(Debug, Default)]
pub(super) struct Held {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    received: u64,
}

impl Held {
    pub(super) fn insert(&mut self, delivery: Arc<Delivery>, renewal: Option<Renewal>) -> Key {
        let number = self.received;
        self.received += 1;
        let entry = Entry {
            number,
            holds_lane: delivery.lane.is_some(),
            delivery,
            renewal,
            task: None,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[place] = Some(entry);
        Key { place, number }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Entry> {
        self.entries
            .get_mut(key.place)?
            .as_mut()
            .filter(|entry| entry.number == key.number)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Entry> {
        self.get_mut(key)?;
        self.free.push(key.place);
        self.entries[key.place].take()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// All of them, in no order that means anything (but always the same).
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut Entry)> {
        self.entries
            .iter_mut()
            .enumerate()
            .filter_map(|(place, slot)| {
                let entry = slot.as_mut()?;
                let number = entry.number;
                Some((Key { place, number }, entry))
            })
    }

    /// Those whose lease is due for renewal at `now`, oldest first, and when the next one will be.
    pub(super) fn due(&mut self, now: Instant) -> (Vec<Key>, Option<Instant>) {
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        for (key, entry) in self.iter_mut() {
            match entry.renewal.map(|renewal| renewal.due()) {
                Some(at) if at <= now => due.push(key),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        due.sort_unstable_by_key(|key| key.number());
        (due, next)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;

    fn delivery() -> Delivery {
        Delivery::new(Arc::from("q"), Bytes::new())
    }

    #[test]
    fn a_key_outlives_its_delivery_and_finds_nothing_then() {
        let mut held = Held::default();
        let first = held.insert(Arc::new(delivery()), None);
        assert!(held.remove(first).is_some());
        let second = held.insert(Arc::new(delivery()), None);
        // The place is used again, the key is not.
        assert_eq!(held.entries.len(), 1);
        assert!(held.get_mut(first).is_none());
        assert!(held.remove(first).is_none());
        assert!(held.get_mut(second).is_some());
        assert_eq!(held.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_comes_oldest_first() {
        let mut held = Held::default();
        let now = Instant::now();
        let mut leased = |seconds| {
            let delivery = delivery().with_lease(now + Duration::from_secs(seconds));
            let renewal = Renewal::plan(&delivery, now);
            held.insert(Arc::new(delivery), renewal)
        };
        let (gone, slow, quick, later) = (leased(3), leased(30), leased(3), leased(60));
        held.remove(gone);
        let newest = held.insert(Arc::new(delivery()), None);
        let at = now + Duration::from_secs(10);
        let (due, next) = held.due(at);
        assert_eq!(due, [slow, quick]);
        assert_eq!(next, Some(now + Duration::from_secs(20)));
        assert!(held.get_mut(later).is_some() && held.get_mut(newest).is_some());
    }

    #[tokio::test]
    async fn dropping_a_task_aborts_it_unless_it_is_finished() {
        let (held, mut end) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(Running::new(task, VecDeque::new()));
        assert!((&mut end).await.is_err());

        let (send, receive) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::task::yield_now().await;
            send.send(()).unwrap();
        });
        Running::new(task, VecDeque::new()).finished();
        receive.await.unwrap();
    }
}
