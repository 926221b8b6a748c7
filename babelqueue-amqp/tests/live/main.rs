//! Against real RabbitMQ servers, each test on every version. Without a server they are ignored, with
//! the reason; where `BQ_REQUIRE_BROKERS` is set they fail.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/kit.rs"]
mod kit;

mod declaring;
mod delays;
mod publishing;
mod python;
mod refusals;
mod settling;
#[cfg(feature = "tls")]
mod tls;

use std::process::ExitCode;

use common::{SERVERS, Stand};

fn main() -> ExitCode {
    let tests = [
        declaring::tests(),
        delays::tests(),
        publishing::tests(),
        python::tests(),
        refusals::tests(),
        settling::tests(),
        #[cfg(feature = "tls")]
        tls::tests(),
        kit::of_the_kit(false, |_| true),
    ];
    let stand = Stand::of(SERVERS.to_vec());
    stand.run(&tests.concat())
}
