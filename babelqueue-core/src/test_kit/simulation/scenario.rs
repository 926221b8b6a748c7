//! What a seed means: everything that is chosen before the first message.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::dice::Dice;
use crate::clock::ManualClock;
use crate::decide::{Policy, UnknownUrn};
use crate::envelope::Envelope;
use crate::memory::Kind;
use crate::retry::{Jitter, Retry};
use crate::transport::{Outgoing, PublishOptions};
use crate::{Error, Headers};

/// The URN that the handlers take.
pub(super) const WORK: &str = "urn:babel:sim:work";
/// The URN that only the last worker takes.
pub(super) const UNKNOWN: &str = "urn:babel:sim:nobody";

/// A run, before it begins.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) kind: Kind,
    pub(super) queues: Vec<Arc<str>>,
    pub(super) messages: Vec<Planned>,
    pub(super) policy: Policy,
    pub(super) lives: Vec<Life>,
    /// When every connection breaks, whatever else happens.
    pub(super) cuts: Vec<Duration>,
    pub(super) rates: Rates,
    /// How rough the handlers are, 0 to 3.
    pub(super) roughness: u64,
}

/// A message that the run publishes, in order, each when its time has come.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) at: Duration,
    pub(super) class: Class,
    pub(super) outgoing: Outgoing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// An envelope that a handler takes.
    Work,
    /// One that no handler takes before the last life.
    Unknown,
    /// A body that is no envelope.
    Poison,
}

/// One worker, from its start to its end.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) end: End,
    pub(super) concurrency: usize,
    pub(super) prefetch: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Told to stop, with this long for its handlers.
    Stop(Duration),
    /// Dropped where it stands.
    Kill,
}

/// How often calls fail, in a thousand, and how slow they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub(super) subscribe: u64,
    pub(super) publish: u64,
    pub(super) receive: u64,
    pub(super) settle: u64,
    pub(super) extend: u64,
    /// Of a hundred faults, how many are refusals.
    pub(super) refuse: u64,
    /// The longest way of a call.
    pub(super) latency: Duration,
}

pub(super) const LEASE: Duration = Duration::from_secs(12);
/// The wall time, which stands.
pub(super) const NOW: Duration = Duration::from_hours(500_000);
const PUBLISHING: u64 = 20_000;

impl Scenario {
    pub(super) fn of(seed: u64) -> Result<Self, Error> {
        let mut dice = Dice::new(seed);
        let kind = match seed % 3 {
            0 => Kind::Leased { lease: LEASE },
            1 => Kind::Bound,
            _ => Kind::Rewinding {
                lanes: 1 + dice.below_u32(4),
            },
        };
        let mut queues: Vec<Arc<str>> = vec![Arc::from("work")];
        if dice.chance(25) {
            queues.push(Arc::from("more"));
        }
        let lives = lives(&mut dice);
        let end = lives
            .iter()
            .map(|life| life.until)
            .max()
            .unwrap_or_default();
        let cuts = (0..dice.below(3)).map(|_| dice.duration(end)).collect();
        Ok(Self {
            seed,
            kind,
            messages: messages(&mut dice, &queues)?,
            queues,
            policy: policy(&mut dice),
            lives,
            cuts,
            rates: rates(&mut dice),
            roughness: dice.below(4),
        })
    }
}

fn lives(dice: &mut Dice) -> Vec<Life> {
    let mut lives = Vec::new();
    let mut from = Duration::ZERO;
    for _ in 0..=dice.below(3) {
        let length = Duration::from_millis(200 + dice.below(25_000));
        let until = from + length;
        lives.push(Life {
            from,
            until,
            end: match dice.below(6) {
                0 | 1 => End::Kill,
                2 => End::Stop(Duration::ZERO),
                3 | 4 => End::Stop(Duration::from_secs(1)),
                _ => End::Stop(Duration::from_secs(30)),
            },
            concurrency: [1, 1, 2, 3, 5, 8][dice.index(6)],
            prefetch: dice.chance(30).then(|| 8 + dice.index(24)),
        });
        // The next one comes later, or while this one still runs.
        from = if dice.chance(40) {
            from + length / 2
        } else {
            until + Duration::from_millis(dice.below(2_000))
        };
    }
    lives
}

fn policy(dice: &mut Dice) -> Policy {
    let mut retry = Retry::attempts(1 + dice.below_u32(4));
    if dice.chance(60) {
        let base = Duration::from_millis(100 + dice.below(1_500));
        retry = retry.backoff(base, 2.0).max_delay(Duration::from_secs(8));
    }
    if dice.chance(30) {
        retry = retry.jitter(Jitter::Full);
    }
    let strategies = [
        UnknownUrn::Fail,
        UnknownUrn::Delete,
        UnknownUrn::Release,
        UnknownUrn::DeadLetter,
    ];
    Policy::default()
        .retry(retry)
        .dead_letter(dice.chance(60))
        .on_unknown_urn(strategies[dice.index(4)])
        // Without a delay it would go round and round while nothing else can happen.
        .unknown_urn_release_delay(Duration::from_secs(2))
}

fn rates(dice: &mut Dice) -> Rates {
    // Some runs are calm, so that bugs show which need no fault, and no fault hides.
    let calm = dice.chance(15);
    let mut rate = |most: u64| if calm { 0 } else { dice.below(most) };
    let (subscribe, publish) = (rate(200), rate(120));
    let (receive, settle, extend) = (rate(120), rate(120), rate(250));
    Rates {
        subscribe,
        publish,
        receive,
        settle,
        extend,
        refuse: if dice.chance(20) { 10 } else { 0 },
        latency: match dice.below(4) {
            0 | 1 => Duration::ZERO,
            2 => Duration::from_millis(5),
            _ => Duration::from_millis(400),
        },
    }
}

fn messages(dice: &mut Dice, queues: &[Arc<str>]) -> Result<Vec<Planned>, Error> {
    let clock = ManualClock::at(NOW);
    let count = 48 + dice.below_u32(17);
    let burst = dice.chance(40);
    let mut at = 0;
    let mut messages = Vec::new();
    for number in 0..count {
        if !burst {
            at += dice.below(2 * PUBLISHING / u64::from(count));
        }
        let class = match dice.below(100) {
            0..=5 => Class::Poison,
            6..=11 => Class::Unknown,
            _ => Class::Work,
        };
        let queue = &queues[dice.index(queues.len())];
        messages.push(Planned {
            at: Duration::from_millis(at),
            class,
            outgoing: Outgoing {
                queue: Arc::clone(queue),
                body: body(dice, number, class, &clock)?,
                headers: headers(dice, number),
                options: options(dice),
            },
        });
    }
    Ok(messages)
}

/// A body that carries its number, and is like no other.
fn body(dice: &mut Dice, number: u32, class: Class, clock: &ManualClock) -> Result<Bytes, Error> {
    if class == Class::Poison {
        return Ok(match dice.below(4) {
            0 => format!("poison {number}").into(),
            1 => format!(r#"{{"job":{number}}}"#).into(),
            2 => format!(r#"{{"job":"{WORK}","attempts":"{number}"}}"#).into(),
            _ => format!("[{number},").into(),
        });
    }
    let urn = if class == Class::Work { WORK } else { UNKNOWN };
    let data = format!(r#"{{"number":{number}}}"#);
    let envelope = Envelope::builder(urn)
        .data_raw(data)
        .id(format!("id-{number}"))
        .trace_id(format!("trace-{number}"))
        .clock(clock)
        .build()?;
    Ok(match dice.below(8) {
        0 => envelope
            .with_unchecked_member("/timestamp", "17")
            .into_bytes(),
        1 => envelope
            .with_unchecked_member("/vendor", "[1e400, {}]")
            .into_bytes(),
        _ => envelope.into_bytes(),
    })
}

fn headers(dice: &mut Dice, number: u32) -> Headers {
    let mut headers = Headers::new();
    if dice.chance(50) {
        headers.insert("traceparent", format!("00-{number}"));
    }
    headers
}

fn options(dice: &mut Dice) -> PublishOptions {
    let mut options = PublishOptions::new();
    if dice.chance(60) {
        options = options.group(["a", "b", "c"][dice.index(3)]);
    }
    if dice.chance(8) {
        options = options.delay(Duration::from_millis(dice.below(5_000)));
    }
    options
}
