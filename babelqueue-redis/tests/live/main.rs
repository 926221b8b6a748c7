//! Against real servers: a shared one for what leaves others alone, one of its own for each test that
//! kills it, fills it or reconfigures it.

#[cfg(feature = "cluster")]
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod fails;
mod frames;
mod idempotency;
mod kit;
mod leases;
mod messages;
mod processing;
mod proxy;
mod refusals;
mod server;
#[cfg(feature = "tls")]
mod tls;
mod unsettled;
mod wakes;
mod worker;

use std::future::Future;
use std::process::ExitCode;

use babelqueue_core::Error;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// How a test ends short of passing.
enum Fault {
    /// There is no server for it; that is no failure unless the environment asks for one.
    NoServer(String),
    Failed(Failed),
}

type Outcome = Result<(), Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<redis::RedisError> for Fault {
    fn from(error: redis::RedisError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<&str> for Fault {
    fn from(what: &str) -> Self {
        Self::Failed(what.into())
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(4);
    let mut trials = Vec::new();
    trials.extend(kit::trials());
    trials.extend(messages::trials());
    trials.extend(frames::trials());
    trials.extend(processing::trials());
    trials.extend(wakes::trials());
    trials.extend(worker::trials());
    trials.extend(leases::trials());
    trials.extend(refusals::trials());
    trials.extend(fails::trials());
    trials.extend(unsettled::trials());
    trials.extend(idempotency::trials());
    #[cfg(feature = "cluster")]
    trials.extend(cluster::trials());
    #[cfg(feature = "tls")]
    trials.extend(tls::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A trial that runs on a runtime of its own.
fn trial<F: Future<Output = Outcome>>(
    name: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || {
        let runtime = tokio::runtime::Runtime::new()?;
        match runtime.block_on(test()) {
            Ok(()) => Ok(Completion::Completed),
            Err(Fault::Failed(failed)) => Err(failed),
            Err(Fault::NoServer(why)) if server::is_required() => Err(why.into()),
            Err(Fault::NoServer(why)) => Ok(Completion::ignored_with(why)),
        }
    })
}

/// A trial for each of these functions, named `module/function`.
#[macro_export]
macro_rules! trials {
    ($($test:ident),* $(,)?) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            let module = module_path!().rsplit("::").next().unwrap_or_default();
            vec![$($crate::trial(&format!("{module}/{}", stringify!($test)), $test)),*]
        }
    };
}
