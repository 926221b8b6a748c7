use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Values by id, each until a time of its own. Times are since the Unix epoch.
#[derive(Debug)]
pub(super) struct Expiring<V> {
    by_id: HashMap<String, (Place, V)>,
    /// The same ids, the first to end first.
    by_end: BTreeMap<Place, String>,
    inserted: u64,
}

/// When an entry ends, and its running number.
type Place = (Duration, u64);

impl<V> Expiring<V> {
    pub(super) fn new() -> Self {
        Self {
            by_id: HashMap::new(),
            by_end: BTreeMap::new(),
            inserted: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The value of `id`, if it has not ended at `now`.
    pub(super) fn get(&self, id: &str, now: Duration) -> Option<&V> {
        let ((end, _), value) = self.by_id.get(id)?;
        (*end > now).then_some(value)
    }

    /// Puts `value` in the place of what was there.
    pub(super) fn insert(&mut self, id: &str, value: V, end: Duration) {
        self.remove(id);
        self.inserted += 1;
        let place = (end, self.inserted);
        self.by_end.insert(place, id.to_owned());
        self.by_id.insert(id.to_owned(), (place, value));
    }

    pub(super) fn remove(&mut self, id: &str) {
        if let Some((place, _)) = self.by_id.remove(id) {
            self.by_end.remove(&place);
        }
    }

    /// Drops what has ended at `now`.
    pub(super) fn drop_ended(&mut self, now: Duration) {
        while let Some((&(end, _), _)) = self.by_end.first_key_value() {
            if end > now {
                return;
            }
            self.drop_first();
        }
    }

    /// Drops what would end first.
    pub(super) fn drop_first(&mut self) {
        if let Some((_, id)) = self.by_end.pop_first() {
            self.by_id.remove(&id);
        }
    }
}
