use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use babelqueue_core::transport::{Delivery, Fence, Lane, LaneBook};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::polls::Receipt;

/// What one subscription has given out and not heard back of.
pub(crate) struct Out {
    generation: u64,
    books: Mutex<Books>,
    came_home: Notify,
}

#[derive(Default)]
struct Books {
    last: u64,
    out: BTreeMap<u64, Entry>,
    lanes: LaneBook,
    /// Lanes whose head went back, and until when it is waited for.
    held_up: BTreeMap<Lane, Instant>,
}

struct Entry {
    delivery: Arc<Delivery>,
    is_being_settled: bool,
}

impl Books {
    /// What is still in our books and comes again, though it may not be over by our clock: the service
    /// began to count before its answer was here, and how long before nobody says. It gives out nothing
    /// of a group of which something is out, so all of an earlier run of the lane comes again then.
    fn forget_earlier_run(&mut self, delivery: &Delivery) {
        let of_run = self.out.values().filter(|entry| {
            let earlier = &entry.delivery;
            let is_over = earlier.is_lost() || earlier.lease_is_over();
            let of_lane = delivery.lane.is_some() && earlier.lane == delivery.lane;
            !entry.is_being_settled && (of_lane && is_over || is_same_message(earlier, delivery))
        });
        let over: Vec<_> = of_run.map(|entry| entry.delivery.clone()).collect();
        for earlier in over {
            earlier.mark_lost();
            for after in self.lanes.take_back(&earlier) {
                self.out.remove(&after.fence.id);
            }
            self.out.remove(&earlier.fence.id);
        }
    }
}

/// Whether both are receives of one message.
fn is_same_message(one: &Delivery, other: &Delivery) -> bool {
    message_id(one).is_some_and(|id| message_id(other) == Some(id))
}

fn message_id(delivery: &Delivery) -> Option<&str> {
    let receipt = delivery.native::<Receipt>()?;
    Some(&*receipt.message_id).filter(|id| !id.is_empty())
}

impl Out {
    pub(crate) fn new() -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        Self {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            books: Mutex::default(),
            came_home: Notify::new(),
        }
    }

    /// The mark of a delivery that is new.
    pub(crate) fn fence(&self) -> Fence {
        let mut books = self.lock();
        books.last += 1;
        Fence {
            generation: self.generation,
            id: books.last,
        }
    }

    /// Notes that `delivery` is given out.
    pub(crate) fn enter(&self, delivery: &Arc<Delivery>) {
        let mut books = self.lock();
        books.forget_earlier_run(delivery);
        books.lanes.enter(delivery);
        let entry = Entry {
            delivery: delivery.clone(),
            is_being_settled: false,
        };
        books.out.insert(delivery.fence.id, entry);
    }

    /// Whether it is out.
    pub(crate) fn is_out(&self, delivery: &Delivery) -> bool {
        delivery.fence.generation == self.generation
            && self.lock().out.contains_key(&delivery.fence.id)
    }

    /// Takes it to be settled, once, if it is still ours.
    pub(crate) fn claim(&self, delivery: &Delivery) -> bool {
        if delivery.fence.generation != self.generation {
            return false;
        }
        let mut books = self.lock();
        let entry = books.out.get_mut(&delivery.fence.id);
        let Some(entry) = entry.filter(|entry| !entry.is_being_settled) else {
            return false;
        };
        if delivery.is_lost() || delivery.lease_is_over() {
            return false;
        }
        entry.is_being_settled = true;
        true
    }

    /// It has come to its end; its neighbours go on.
    pub(crate) fn done(&self, delivery: &Delivery) {
        if let Some(lane) = &delivery.lane {
            self.lock().held_up.remove(lane);
        }
        self.leave(delivery);
    }

    /// Its lane waits for it to come again, for `time` at the longest.
    pub(crate) fn hold_up(&self, delivery: &Delivery, time: Duration) {
        if let Some(lane) = &delivery.lane {
            let mut books = self.lock();
            books.held_up.insert(lane.clone(), Instant::now() + time);
        }
    }

    /// Whether a lane waits for its head. Whatever comes with the head then goes back with it, and is
    /// counted each time.
    pub(crate) fn is_held_up(&self) -> bool {
        let mut books = self.lock();
        if books.held_up.is_empty() {
            return false;
        }
        let now = Instant::now();
        books.held_up.retain(|_, until| *until > now);
        !books.held_up.is_empty()
    }

    /// It is ours no more.
    pub(crate) fn leave(&self, delivery: &Delivery) {
        if delivery.fence.generation != self.generation {
            return;
        }
        let mut books = self.lock();
        books.lanes.strike(delivery);
        books.out.remove(&delivery.fence.id);
        drop(books);
        self.came_home.notify_waiters();
    }

    /// Takes back what was given out after it in its lane: those are lost now, and are to be given
    /// back. It itself stays out.
    pub(crate) fn take_back_rest(&self, delivery: &Delivery) -> Vec<Arc<Delivery>> {
        let mut books = self.lock();
        let mut rest = books.lanes.take_back(delivery);
        // What is being settled beside it has its own answer to come.
        rest.retain(|after| {
            let id = after.fence.id;
            let entry = books.out.get(&id);
            if entry.is_none_or(|entry| entry.is_being_settled) {
                return false;
            }
            books.out.remove(&id);
            true
        });
        drop(books);
        self.came_home.notify_waiters();
        rest
    }

    /// It is lost, and so is what came after it in its lane, which is to be given back.
    pub(crate) fn lose(&self, delivery: &Delivery) -> Vec<Arc<Delivery>> {
        delivery.mark_lost();
        let rest = self.take_back_rest(delivery);
        self.leave(delivery);
        rest
    }

    /// All of it is lost: nobody waits for it any more.
    pub(crate) fn lose_all(&self) {
        let mut books = self.lock();
        books.lanes.take_back_all();
        let out = std::mem::take(&mut books.out);
        drop(books);
        for entry in out.values() {
            entry.delivery.mark_lost();
        }
        self.came_home.notify_waiters();
    }

    /// Waits until all are settled, or lost, or their leases over.
    pub(crate) async fn all_home(&self) {
        loop {
            let home = self.came_home.notified();
            tokio::pin!(home);
            // Registered before the books are read: the last one may come home in between.
            home.as_mut().enable();
            match self.wait() {
                Wait::Nothing => return,
                Wait::Settlement => home.await,
                // Nobody tells us of a lease that ends.
                Wait::Until(end) => _ = timeout_at(end, home).await,
            }
        }
    }

    fn wait(&self) -> Wait {
        let books = self.lock();
        let mut wait = Wait::Nothing;
        for entry in books.out.values() {
            if entry.is_being_settled {
                return Wait::Settlement;
            }
            let is_ours = !entry.delivery.is_lost() && !entry.delivery.lease_is_over();
            if let Some(end) = entry.delivery.lease_end().filter(|_| is_ours) {
                wait = match wait {
                    Wait::Until(earlier) => Wait::Until(earlier.min(end)),
                    _ => Wait::Until(end),
                };
            }
        }
        wait
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be waited for.
enum Wait {
    Nothing,
    Settlement,
    Until(Instant),
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt as _;

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn give_out(out: &Out, lane: &'static str) -> Arc<Delivery> {
        give_out_message(out, lane, "")
    }

    fn give_out_message(out: &Out, lane: &'static str, message_id: &str) -> Arc<Delivery> {
        let delivery = Delivery::new("orders".into(), Bytes::new());
        let mut delivery = delivery
            .with_lease(Instant::now() + LEASE)
            .with_native(Receipt {
                handle: "".into(),
                attributes: Arc::default(),
                group: None,
                message_id: message_id.into(),
            });
        delivery.fence = out.fence();
        delivery.lane = (!lane.is_empty()).then(|| Lane {
            scope: 0,
            key: Bytes::from_static(lane.as_bytes()),
        });
        let delivery = Arc::new(delivery);
        out.enter(&delivery);
        delivery
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_is_settled_once_and_by_its_own_subscription() {
        let (out, other) = (Out::new(), Out::new());
        let delivery = give_out(&out, "");
        assert!(!other.claim(&delivery) && !other.is_out(&delivery));
        assert!(out.claim(&delivery));
        assert!(!out.claim(&delivery));
        out.done(&delivery);
        assert!(!out.claim(&delivery) && !out.is_out(&delivery));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_lost_or_over_is_not_settled() {
        let out = Out::new();
        let (lost, over) = (give_out(&out, ""), give_out(&out, ""));
        lost.mark_lost();
        assert!(!out.claim(&lost));
        tokio::time::advance(LEASE).await;
        assert!(!out.claim(&over));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_lane_is_lost_with_its_head() {
        let out = Out::new();
        let lane: Vec<_> = (0..4).map(|_| give_out(&out, "a")).collect();
        let other = give_out(&out, "b");
        assert!(out.claim(&lane[1]));
        let rest: Vec<_> = out.take_back_rest(&lane[0]);
        let ids: Vec<_> = rest.iter().map(|delivery| delivery.fence.id).collect();
        assert_eq!(ids, [lane[2].fence.id, lane[3].fence.id]);
        assert!(out.is_out(&lane[0]) && out.is_out(&lane[1]) && !out.is_out(&lane[2]));
        assert!(!other.is_lost() && out.is_out(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_after_a_lease_is_over_is_a_new_run_of_its_lane() {
        let out = Out::new();
        let (first, second) = (give_out(&out, "a"), give_out(&out, "a"));
        tokio::time::advance(LEASE).await;
        let again = give_out(&out, "a");
        assert!(first.is_lost() && second.is_lost());
        assert!(out.lose(&first).is_empty() && !again.is_lost());
        assert!(out.claim(&again));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_comes_again_is_lost_before_its_lease_is_over() {
        let out = Out::new();
        for lane in ["", "a"] {
            let first = give_out_message(&out, lane, "1");
            let (after, other) = (
                give_out_message(&out, lane, "2"),
                give_out_message(&out, "b", "3"),
            );
            let again = give_out_message(&out, lane, "1");
            assert!(first.is_lost() && !out.claim(&first));
            assert_eq!(after.is_lost(), lane == "a", "with its lane, if it has one");
            assert!(!other.is_lost() && !again.is_lost() && out.claim(&again));
            out.done(&again);
            out.lose_all();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_is_held_up_until_its_head_is_done_or_too_late() {
        let out = Out::new();
        let (first, plain) = (give_out(&out, "a"), give_out(&out, ""));
        out.hold_up(&plain, LEASE);
        assert!(!out.is_held_up());
        out.hold_up(&first, LEASE);
        out.leave(&first);
        assert!(out.is_held_up());
        out.done(&give_out(&out, "a"));
        assert!(!out.is_held_up());
        out.hold_up(&first, LEASE);
        tokio::time::advance(LEASE).await;
        assert!(!out.is_held_up());
    }

    #[tokio::test(start_paused = true)]
    async fn all_are_home_when_settled_lost_or_over() {
        let out = Out::new();
        let (settled, lost, _over) = (give_out(&out, ""), give_out(&out, ""), give_out(&out, ""));
        let begun = Instant::now();
        let home = out.all_home();
        tokio::pin!(home);
        assert!(home.as_mut().now_or_never().is_none());
        out.done(&settled);
        out.lose(&lost);
        home.await;
        assert_eq!(begun.elapsed(), LEASE);
    }
}
