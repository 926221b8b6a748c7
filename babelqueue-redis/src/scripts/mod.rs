//! The Lua scripts: each is one atomic step of the contract's Redis binding (§11A, §11B), for many
//! messages at once, and handles everything as bytes.

use std::sync::OnceLock;

use redis::Cmd;

/// SDK layout: sweep alone (§11A.4).
pub(crate) static SDK_SWEEP: Script = Script::new(concat!(
    include_str!("clock.lua"),
    include_str!("sweep.lua"),
    include_str!("sdk_sweep.lua")
));

/// SDK layout: sweep, then reserve up to n (§11A.2).
pub(crate) static SDK_RESERVE: Script = Script::new(concat!(
    include_str!("clock.lua"),
    include_str!("sweep.lua"),
    include_str!("sdk_reserve.lua")
));

/// SDK layout: what lies under given tokens.
pub(crate) static SDK_FIND: Script = Script::new(include_str!("sdk_find.lua"));

/// SDK layout: ack, release and dead-letter many, each gated (§11A.3).
pub(crate) static SDK_SETTLE: Script = Script::new(concat!(
    include_str!("copy.lua"),
    include_str!("sdk_settle.lua")
));

/// Laravel layout: migrate alone (§11B.3).
pub(crate) static LARAVEL_MIGRATE: Script = Script::new(concat!(
    include_str!("clock.lua"),
    include_str!("migrate.lua"),
    include_str!("laravel_migrate.lua")
));

/// Laravel layout: migrate, then reserve up to n (§11B.4).
pub(crate) static LARAVEL_RESERVE: Script = Script::new(concat!(
    include_str!("clock.lua"),
    include_str!("migrate.lua"),
    include_str!("laravel_reserve.lua")
));

/// Laravel layout: ack, release and dead-letter many (§11B.6–8).
pub(crate) static LARAVEL_SETTLE: Script = Script::new(concat!(
    include_str!("clock.lua"),
    include_str!("copy.lua"),
    include_str!("laravel_settle.lua")
));

/// Laravel layout: push many with their notify tokens (§11B.1).
pub(crate) static LARAVEL_PUSH: Script = Script::new(include_str!("laravel_push.lua"));

/// Laravel layout: push many into `:delayed` (§11B.2).
pub(crate) static LARAVEL_DELAY: Script = Script::new(concat!(
    include_str!("clock.lua"),
    include_str!("laravel_delay.lua")
));

/// Either layout: renew many leases.
pub(crate) static EXTEND: Script = Script::new(concat!(
    include_str!("clock.lua"),
    include_str!("extend.lua")
));

/// Idempotency: claim an id (§17A).
pub(crate) static CLAIM: Script = Script::new(include_str!("claim.lua"));

/// Idempotency: remember an id, and end the claim on it.
pub(crate) static REMEMBER: Script = Script::new(include_str!("remember.lua"));

/// Idempotency: give a claim up.
pub(crate) static UNCLAIM: Script = Script::new(include_str!("unclaim.lua"));

/// The most messages that one script call takes. `unpack` in Redis's Lua breaks at 8,000 values, and
/// a sorted set takes two for each member.
pub(crate) const MOST_PER_CALL: usize = 1000;

/// How long a digest is, in hex.
const DIGEST_BYTES: usize = 40;

/// A script, and the digest that the server knows it by.
#[derive(Debug)]
pub(crate) struct Script {
    body: &'static str,
    digest: OnceLock<String>,
}

impl Script {
    const fn new(body: &'static str) -> Self {
        Self {
            body,
            digest: OnceLock::new(),
        }
    }

    /// The call by digest, or, for a server that does not know the script (yet, or any more), with
    /// its whole text, which also teaches it. `write` adds the number of keys, the keys and the
    /// arguments, about as much as `size` says.
    pub(crate) fn call(&self, by: By, size: Size, write: impl FnOnce(&mut Cmd)) -> Cmd {
        let mut command = Cmd::with_capacity(size.arguments + 2, size.bytes + DIGEST_BYTES + 7);
        match by {
            By::Digest => command.arg("EVALSHA").arg(self.digest()),
            By::Text => command.arg("EVAL").arg(self.body),
        };
        write(&mut command);
        command
    }

    fn digest(&self) -> &str {
        self.digest
            .get_or_init(|| redis::Script::new(self.body).get_hash().to_owned())
    }
}

/// How large a call will be, so that its memory is had at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) arguments: usize,
    pub(crate) bytes: usize,
}

impl Size {
    /// Of a call with keys, a clock and little else.
    pub(crate) const SMALL: Self = Self {
        arguments: 12,
        bytes: 256,
    };

    /// Of a small call, and `arguments` of `bytes` in all beside.
    pub(crate) fn with(arguments: usize, bytes: usize) -> Self {
        Self {
            arguments: Self::SMALL.arguments + arguments,
            bytes: Self::SMALL.bytes + bytes,
        }
    }
}

/// How a script is named in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Digest,
    Text,
}
