use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Delivery, Lane};

/// What a transport has given out of each lane and not yet heard back of, in order: the book that
/// keeps law 4 of [the seam](super).
///
/// For a broker that hands several messages of one lane to the same consumer and takes each back by
/// itself (SQS FIFO, Artemis, Pulsar, memory). A transport keeps one per subscription behind its own
/// lock, and
///
/// - [enters](Self::enter) each delivery in the order in which the broker gave it,
/// - [strikes](Self::strike) it when its settlement is [`Settled::Done`](super::Settled::Done),
/// - on *anything else* (an error, a retry in place, a refused `begin` or `extend`) asks for
///   [the rest of its lane](Self::take_back) and gives those back to the broker, before it answers.
///
/// Deliveries without a lane pass through it untouched.
#[derive(Debug, Default)]
pub struct LaneBook {
    runs: BTreeMap<Lane, VecDeque<Arc<Delivery>>>,
}

impl LaneBook {
    /// An empty book.
    pub const fn new() -> Self {
        Self {
            runs: BTreeMap::new(),
        }
    }

    /// Notes that `delivery` was given out, after all others of its lane.
    pub fn enter(&mut self, delivery: &Arc<Delivery>) {
        let Some(lane) = &delivery.lane else { return };
        if let Some(run) = self.runs.get_mut(lane) {
            run.push_back(Arc::clone(delivery));
        } else {
            let run = VecDeque::from([Arc::clone(delivery)]);
            self.runs.insert(lane.clone(), run);
        }
    }

    /// Notes that `delivery` is done: its neighbours go on.
    pub fn strike(&mut self, delivery: &Delivery) {
        if let Some(lane) = &delivery.lane {
            self.cut(lane, delivery, 1);
        }
    }

    /// Strikes `delivery` and everything that was given out after it in its lane. Those after it are
    /// marked lost and handed back in order, for the transport to return to the broker; `delivery`
    /// itself is not marked, for it may be settled.
    ///
    /// Nothing where the book does not know `delivery`: then its lane was taken back already.
    pub fn take_back(&mut self, delivery: &Delivery) -> Vec<Arc<Delivery>> {
        let Some(lane) = &delivery.lane else {
            return Vec::new();
        };
        let mut rest = self.cut(lane, delivery, usize::MAX);
        if !rest.is_empty() {
            rest.remove(0);
        }
        for after in &rest {
            after.mark_lost();
        }
        rest
    }

    /// Strikes everything, marks it lost, and hands it back, lane by lane and in order within each:
    /// the connection is gone.
    pub fn take_back_all(&mut self) -> Vec<Arc<Delivery>> {
        let all: Vec<_> = std::mem::take(&mut self.runs)
            .into_values()
            .flatten()
            .collect();
        for delivery in &all {
            delivery.mark_lost();
        }
        all
    }

    /// How many deliveries of `lane` are out.
    pub fn out(&self, lane: &Lane) -> usize {
        self.runs.get(lane).map_or(0, VecDeque::len)
    }

    /// Whether nothing with a lane is out.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Takes `delivery` and up to `count - 1` of those after it out of the run.
    fn cut(&mut self, lane: &Lane, delivery: &Delivery, count: usize) -> Vec<Arc<Delivery>> {
        let Some(run) = self.runs.get_mut(lane) else {
            return Vec::new();
        };
        // Nearly always the first: a lane is settled in order.
        let Some(at) = run.iter().position(|out| out.fence == delivery.fence) else {
            return Vec::new();
        };
        let end = at.saturating_add(count).min(run.len());
        let cut = run.drain(at..end).collect();
        if run.is_empty() {
            self.runs.remove(lane);
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::transport::Fence;

    fn delivery(lane: Option<&'static str>, id: u64) -> Arc<Delivery> {
        let mut delivery = Delivery::new("orders".into(), Bytes::new());
        delivery.lane = lane.map(|key| Lane {
            scope: 0,
            key: Bytes::from_static(key.as_bytes()),
        });
        delivery.fence = Fence { generation: 1, id };
        Arc::new(delivery)
    }

    fn ids(deliveries: &[Arc<Delivery>]) -> Vec<u64> {
        deliveries.iter().map(|out| out.fence.id).collect()
    }

    #[test]
    fn what_came_after_in_the_lane_is_taken_back_in_order() {
        let mut book = LaneBook::new();
        let a: Vec<_> = (0..4).map(|id| delivery(Some("a"), id)).collect();
        let b = delivery(Some("b"), 9);
        for out in a.iter().chain([&b]) {
            book.enter(out);
        }
        book.strike(&a[0]);

        assert_eq!(ids(&book.take_back(&a[1])), [2, 3]);
        assert_eq!(
            a.iter().map(|out| out.is_lost()).collect::<Vec<_>>(),
            [false, false, true, true]
        );
        assert!(!b.is_lost());
        assert_eq!(book.out(b.lane.as_ref().unwrap()), 1);
        assert_eq!(book.out(a[0].lane.as_ref().unwrap()), 0);
    }

    #[test]
    fn a_delivery_of_an_earlier_run_takes_nothing_back() {
        let mut book = LaneBook::new();
        let (old, new) = (delivery(Some("a"), 1), delivery(Some("a"), 2));
        book.enter(&old);
        book.take_back(&old);
        book.enter(&new);

        assert!(book.take_back(&old).is_empty());
        assert!(!new.is_lost());
        assert_eq!(book.out(new.lane.as_ref().unwrap()), 1);
    }

    #[test]
    fn without_a_lane_nothing_is_kept() {
        let mut book = LaneBook::new();
        let plain = delivery(None, 1);
        book.enter(&plain);
        assert!(book.is_empty());
        assert!(book.take_back(&plain).is_empty());
    }

    #[test]
    fn a_lost_connection_takes_everything_back() {
        let mut book = LaneBook::new();
        let out = [
            delivery(Some("b"), 1),
            delivery(Some("a"), 2),
            delivery(Some("b"), 3),
        ];
        for delivery in &out {
            book.enter(delivery);
        }
        assert_eq!(ids(&book.take_back_all()), [2, 1, 3]);
        assert!(out.iter().all(|delivery| delivery.is_lost()));
        assert!(book.is_empty());
    }
}
