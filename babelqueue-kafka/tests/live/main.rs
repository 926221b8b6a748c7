//! Against a real Kafka. Where there is none, each trial is ignored and says so.

mod broker;
mod child;
mod crashes;
mod groups;
mod kit;
mod log;
mod numbered;
mod python;
#[cfg(feature = "ssl")]
mod secure;
mod topics;

use std::future::Future;
use std::process::ExitCode;

use babelqueue_core::Error;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// How a test ends short of passing.
enum Fault {
    /// There is no broker for it; that is no failure unless the environment asks for one.
    NoBroker(String),
    /// There is no peer for it, which nobody requires.
    Absent(String),
    Failed(Failed),
}

type Outcome = Result<(), Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<rdkafka::error::KafkaError> for Fault {
    fn from(error: rdkafka::error::KafkaError) -> Self {
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

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self::Failed(what.into())
    }
}

fn main() -> ExitCode {
    if let Some(job) = child::Job::given() {
        return child::work(&job);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(4);
    let mut trials = Vec::new();
    trials.extend(kit::trials());
    trials.extend(topics::trials());
    trials.extend(groups::trials());
    trials.extend(crashes::trials());
    trials.extend(python::trials());
    #[cfg(feature = "ssl")]
    trials.extend(secure::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
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
            Err(Fault::NoBroker(why)) if std::env::var_os("BQ_REQUIRE_BROKERS").is_some() => {
                Err(why.into())
            }
            Err(Fault::NoBroker(why) | Fault::Absent(why)) => Ok(Completion::ignored_with(why)),
        }
    })
}
