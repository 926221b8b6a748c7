//! What a delivery's settlement needs: which member of the deadlines it is, and the bytes as stored.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use babelqueue_core::Error;
use bytes::Bytes;
use redis::{RedisWrite, ToRedisArgs};
use tokio::sync::Notify;

const TOKEN_BYTES: usize = 16;

/// A reservation's own mark: 16 random bytes in lowercase hex (contract §11A.2). It tells a
/// reservation from a later one of the same bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token([u8; Self::BYTES]);

impl Token {
    /// How long one is.
    pub(crate) const BYTES: usize = 2 * TOKEN_BYTES;

    /// `count` fresh ones, for one draw from the operating system.
    pub(crate) fn fresh(count: usize) -> Result<Vec<Self>, Error> {
        let mut random = vec![0_u8; count * TOKEN_BYTES];
        getrandom::fill(&mut random).map_err(|error| {
            Error::transient(
                "receive",
                format_args!("no random bytes for tokens: {error}"),
            )
        })?;
        Ok(random.chunks_exact(TOKEN_BYTES).map(Self::hex).collect())
    }

    /// One that was made elsewhere, if it is 32 bytes.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        text.as_bytes().try_into().ok().map(Self)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn hex(bytes: &[u8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; Self::BYTES];
        for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xF)];
        }
        Self(text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// What stands in a sorted set for a delivery in flight.
#[derive(Debug)]
pub(crate) enum Member {
    /// `<token>:<stored>` in the SDK layout.
    Marked {
        /// The mark.
        token: Token,
        /// The element of the list, byte for byte.
        stored: Bytes,
    },
    /// In the Laravel layout what the reserve script made of the element.
    Counted(Bytes),
}

impl Member {
    /// How many bytes it takes in a call.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Marked { stored, .. } => Token::BYTES + 1 + stored.len(),
            Self::Counted(member) => member.len(),
        }
    }
}

/// Written piece by piece, so that it is never put together in memory of its own.
impl ToRedisArgs for &Member {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self {
            Member::Marked { token, stored } => {
                let mut writer = out.writer_for_next_arg();
                // Into memory: cannot fail.
                let _ = writer
                    .write_all(token.as_bytes())
                    .and_then(|()| writer.write_all(b":"))
                    .and_then(|()| writer.write_all(stored));
            }
            Member::Counted(member) => out.write_arg(member),
        }
    }
}

/// What a delivery carries for this transport alone.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) member: Member,
    out: Arc<Out>,
    is_home: AtomicBool,
}

impl Reservation {
    /// One that is out until it is settled or dropped. [`Out::go`] has to count it.
    pub(crate) fn new(member: Member, out: &Arc<Out>) -> Self {
        Self {
            member,
            out: Arc::clone(out),
            is_home: AtomicBool::new(false),
        }
    }

    /// It is settled, or ended unsettled.
    pub(crate) fn come_home(&self) {
        self.out.come_home([self]);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.come_home();
    }
}

/// How many deliveries of a subscription are out.
#[derive(Debug, Default)]
pub(crate) struct Out {
    count: AtomicUsize,
    all_home: Notify,
}

impl Out {
    /// Counts so many more reservations, before any of them can come home.
    pub(crate) fn go(&self, count: usize) {
        self.count.fetch_add(count, Ordering::AcqRel);
    }

    /// These are settled, or ended unsettled. Each counts once, and ours all at once: the count is
    /// shared by all threads.
    pub(crate) fn come_home<'r>(&self, reservations: impl IntoIterator<Item = &'r Reservation>) {
        let mut ours = 0;
        for reservation in reservations {
            if reservation.is_home.swap(true, Ordering::AcqRel) {
                continue;
            }
            if std::ptr::eq(Arc::as_ptr(&reservation.out), self) {
                ours += 1;
            } else {
                reservation.out.count_home(1);
            }
        }
        if ours > 0 {
            self.count_home(ours);
        }
    }

    fn count_home(&self, count: usize) {
        if self.count.fetch_sub(count, Ordering::AcqRel) == count {
            self.all_home.notify_waiters();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Waits until all have come home.
    pub(crate) async fn all_home(&self) {
        loop {
            let notified = self.all_home.notified();
            tokio::pin!(notified);
            // Registered before the count is read: the last one may come home in between.
            notified.as_mut().enable();
            if self.is_empty() {
                return;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_32_lowercase_hex_and_differ() {
        let tokens = Token::fresh(100).expect("random bytes");
        for (at, token) in tokens.iter().enumerate() {
            assert!(
                token
                    .as_bytes()
                    .iter()
                    .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')),
                "{token:?}"
            );
            assert!(!tokens[..at].contains(token));
        }
    }

    #[test]
    fn a_marked_member_is_written_as_one_argument() {
        let token = Token::from_text("0123456789abcdef0123456789abcdef").expect("32 bytes");
        let member = Member::Marked {
            token,
            stored: Bytes::from_static(b"\xff raw"),
        };
        assert_eq!(
            (&member).to_redis_args(),
            [b"0123456789abcdef0123456789abcdef:\xff raw".to_vec()]
        );
        assert_eq!(member.len(), 38);
    }

    #[tokio::test]
    async fn a_reservation_comes_home_once_settled_or_dropped() {
        let out = Arc::new(Out::default());
        out.go(2);
        let first = Reservation::new(Member::Counted(Bytes::new()), &out);
        let second = Reservation::new(Member::Counted(Bytes::new()), &out);
        first.come_home();
        drop(first);
        assert!(!out.is_empty());
        drop(second);
        out.all_home().await;
        assert!(out.is_empty());
    }

    #[test]
    fn many_come_home_at_once_and_each_to_its_own() {
        let (ours, others) = (Arc::new(Out::default()), Arc::new(Out::default()));
        ours.go(2);
        others.go(1);
        let of = |out| Reservation::new(Member::Counted(Bytes::new()), out);
        let all = [of(&ours), of(&others), of(&ours)];
        ours.come_home(&all[..1]);
        assert!(!ours.is_empty());
        ours.come_home(&all);
        assert!(ours.is_empty() && others.is_empty());
        drop(all);
        assert!(ours.is_empty() && others.is_empty());
    }
}
