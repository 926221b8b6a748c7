//! What only a transport of lanes that wait shows.

use super::*;

/// A queue that gives out little at a time, and nothing while something is unsettled, as an SQS FIFO
/// group does; its facts and headers are as it is told.
struct Group {
    capabilities: Capabilities,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    waiting: std::collections::VecDeque<(String, Facts)>,
    out: usize,
    settled: Vec<Settlement>,
}

impl Group {
    fn of(messages: impl IntoIterator<Item = (String, Facts)>) -> Self {
        let mut capabilities = Capabilities::new("group", Rules::MEMORY);
        capabilities.lanes = true;
        capabilities.lane_waits = true;
        let waiting = messages.into_iter().collect();
        let state = State {
            waiting,
            ..State::default()
        };
        Self {
            capabilities,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// What it was told to move elsewhere.
    fn moved(&self) -> Vec<Settlement> {
        let state = self.state.lock().unwrap();
        let moves = state.settled.iter();
        let moves = moves.filter(|one| matches!(one, Settlement::Redrive { .. }));
        moves.cloned().collect()
    }
}

struct Half(Arc<Mutex<State>>);

#[async_trait]
impl Transport for Group {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn publish(&self, _: Vec<Outgoing>) -> Vec<Result<(), Error>> {
        Vec::new()
    }

    async fn subscribe(&self, _: &str, _: SubscribeOptions) -> Result<Subscription, Error> {
        Ok(Subscription {
            receiver: Box::new(Half(Arc::clone(&self.state))),
            settler: Arc::new(Half(Arc::clone(&self.state))),
        })
    }
}

#[async_trait]
impl Receiver for Half {
    async fn receive(&mut self, _: usize) -> Result<Vec<Arc<Delivery>>, Error> {
        let mut deliveries = Vec::new();
        {
            let mut state = self.0.lock().unwrap();
            while state.out < 2 {
                let Some((body, facts)) = state.waiting.pop_front() else {
                    break;
                };
                let mut delivery = Delivery::new(DLQ.into(), body.into());
                delivery.facts = facts;
                delivery.lane = Some(Lane {
                    scope: 1,
                    key: Bytes::new(),
                });
                state.out += 1;
                deliveries.push(Arc::new(delivery));
            }
        }
        if deliveries.is_empty() {
            std::future::pending::<()>().await;
        }
        Ok(deliveries)
    }

    async fn close(&mut self, _: Duration) -> Result<(), Error> {
        assert_eq!(self.0.lock().unwrap().out, 0, "something is still out");
        Ok(())
    }
}

#[async_trait]
impl Settler for Half {
    async fn settle(&self, batch: Vec<(Arc<Delivery>, Settlement)>) -> Vec<Result<Settled, Error>> {
        let mut state = self.0.lock().unwrap();
        let mut front = Vec::new();
        for (delivery, settlement) in &batch {
            state.out -= 1;
            let same = (text(&delivery.body), delivery.facts.clone());
            match settlement {
                Settlement::DeadLetter {
                    queue,
                    record,
                    verbatim: true,
                    ..
                } => {
                    assert_eq!((&**queue, record), (DLQ, &delivery.body));
                    state.waiting.push_back(same);
                }
                Settlement::Release { .. } => front.push(same),
                _ => {}
            }
            state.settled.push(settlement.clone());
        }
        for message in front.into_iter().rev() {
            state.waiting.push_front(message);
        }
        batch.iter().map(|_| Ok(Settled::Done)).collect()
    }

    async fn extend(&self, _: &[Arc<Delivery>]) -> Vec<Result<tokio::time::Instant, Error>> {
        Vec::new()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_waits_is_gone_through_to_its_end() {
    let urn = |id: usize| if id < 5 { "urn:other" } else { "urn:wanted" };
    let message = |id| (dead(id, urn(id), "failed"), Facts::default());
    let group = Group::of((0..9).map(message));
    let state = Arc::clone(&group.state);
    let report = run(Redrive::new(group, DLQ).urn("urn:wanted")).await;
    assert_eq!(
        report.summary,
        Summary {
            redriven: 4,
            skipped: 5
        }
    );
    let state = state.lock().unwrap();
    let left = state.waiting.iter().map(|(body, _)| body.clone());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(
        left,
        (0..5)
            .map(|id| dead(id, "urn:other", "failed"))
            .collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_transport_calls_poison_stays() {
    let facts = Facts {
        poison: Some("its attempts are no number"),
        ..Facts::default()
    };
    let group = Group::of([(dead(1, "urn:a", "failed"), facts)]);
    let report = run(Redrive::new(group, DLQ)).await;
    assert_eq!(fates(&report), [Fate::Poison]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_version_goes_back_as_it_is_to_meet_the_gate_again() {
    let foreign = r#"{ "job":"urn:a","meta":{"queue":"orders","schema_version":2} }"#;
    let by_property = Facts {
        version: VersionProperty::Text("2".into()),
        ..Facts::default()
    };
    let ours = r#"{"job":"urn:b","meta":{"queue":"orders"}}"#;
    for (body, facts) in [
        (foreign, Facts::default()),
        (foreign, by_property.clone()),
        (ours, by_property),
    ] {
        let group = Arc::new(Group::of([(body.to_owned(), facts)]));
        let shared: Arc<dyn Transport> = Arc::clone(&group) as _;
        let report = run(Redrive::shared(shared, DLQ).bypass(true)).await;
        assert!(!report.items[0].bypassed, "it carries no headers");
        assert_eq!(
            group.moved(),
            [Settlement::Redrive {
                queue: "orders".into(),
                body: body.to_owned().into(),
                bypass: true,
                verbatim: true,
            }]
        );
    }
}
