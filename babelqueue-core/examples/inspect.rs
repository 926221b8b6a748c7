//! A window into the rules: why a message was refused, and what would become of it.
//!
//! ```text
//! cargo run -p babelqueue-core --example inspect -- [--queue NAME] [FILE]
//! cargo run -p babelqueue-core --example inspect -- [--queue NAME] --lines [FILE]
//! ```
//!
//! Reads one body from FILE or from standard input, or with `--lines` one body a line in standard
//! base64 (an empty line is an empty body), and prints one JSON object for each:
//!
//! - `verdict`: `ok`, `no_identity` or `poison` (contract §2A)
//! - `cause`: `null`, or what is wrong: `message`, `pointer`, `offset`
//! - `identity`: the URN, or `null`
//! - `warnings`: the pointers of what its producer should not write, and that is dropped
//! - `accepts`: whether a consumer takes it (§2B)
//! - `unaccepted`: the pointer of the first member for which it does not, or `null`
//! - `retry`: the envelope's text as a retry writes it, with `attempts` + 1; `null` where it is poison
//! - `poison_record`: in base64, what a dead-letter queue would get of it as poison (§6A), consumed
//!   from NAME (`default` where none is given)
//!
//! A line that is not base64 gives `{"error": …}` in its place, and the exit code 1.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::process::ExitCode;

use babelqueue_core::clock::{Clock, SystemClock};
use babelqueue_core::dead_letter::{DeadLetter, Reason};
use babelqueue_core::envelope::{DecodeError, Decoded, Envelope, Warning};
use babelqueue_core::poison_record;
use bytes::Bytes;
use serde::Serialize;

const USAGE: &str = "\
inspect [--queue NAME] [--lines] [FILE]

Reads one body from FILE or from standard input, and prints as one JSON object why it was refused
and what would become of it.

  --queue NAME  the queue that it was consumed from (default: default)
  --lines       a body a line, in standard base64
";

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "inspect: {error}");
            ExitCode::from(2)
        }
    }
}

/// Inspects what the arguments name; tells whether every line could be read.
fn run(arguments: impl Iterator<Item = String>) -> Result<bool, Box<dyn std::error::Error>> {
    let arguments = Arguments::parse(arguments)?;
    let mut output = io::BufWriter::new(io::stdout().lock());
    if arguments.help {
        output.write_all(USAGE.as_bytes())?;
        output.flush()?;
        return Ok(true);
    }
    let all_read = match &arguments.file {
        Some(path) => {
            let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
            inspect(BufReader::new(file), output, &arguments)?
        }
        None => inspect(io::stdin().lock(), output, &arguments)?,
    };
    Ok(all_read)
}

fn inspect(
    mut input: impl BufRead,
    mut output: impl Write,
    arguments: &Arguments,
) -> io::Result<bool> {
    let mut all_read = true;
    if arguments.lines {
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line)? > 0 {
            if let Some(body) = base64::decode(line.trim_ascii_end()) {
                print(&mut output, &Findings::of(&body.into(), &arguments.queue))?;
            } else {
                all_read = false;
                let error = "the line is not standard base64 with padding";
                print(&mut output, &Unreadable { error })?;
            }
            line.clear();
        }
    } else {
        let mut body = Vec::new();
        input.read_to_end(&mut body)?;
        print(&mut output, &Findings::of(&body.into(), &arguments.queue))?;
    }
    output.flush()?;
    Ok(all_read)
}

fn print(output: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *output, object)?;
    output.write_all(b"\n")
}

struct Arguments {
    help: bool,
    lines: bool,
    queue: String,
    file: Option<String>,
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self {
            help: false,
            lines: false,
            queue: "default".to_owned(),
            file: None,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--help" | "-h" => parsed.help = true,
                "--lines" => parsed.lines = true,
                "--queue" => {
                    parsed.queue = arguments.next().ok_or("`--queue` wants a name")?;
                }
                option if option.starts_with("--") => {
                    return Err(format!(
                        "unknown option `{option}`, expected `--lines` or `--queue NAME`"
                    ));
                }
                _ if parsed.file.is_some() => return Err("more than one file".to_owned()),
                _ => parsed.file = Some(argument),
            }
        }
        Ok(parsed)
    }
}

#[derive(Serialize)]
struct Unreadable {
    error: &'static str,
}

/// What is printed of a body.
#[derive(Serialize)]
struct Findings {
    verdict: &'static str,
    cause: Option<CauseFound>,
    identity: Option<String>,
    warnings: Vec<&'static str>,
    accepts: bool,
    unaccepted: Option<&'static str>,
    retry: Option<String>,
    poison_record: String,
}

#[derive(Serialize)]
struct CauseFound {
    message: String,
    pointer: String,
    offset: usize,
}

impl Findings {
    fn of(body: &Bytes, queue: &str) -> Self {
        let decoded = Envelope::decode(body.clone());
        let record = poison_record::write(body, &block(&decoded, queue));
        let poison_record = base64::encode(&record);
        match decoded {
            Err(error) => Self {
                verdict: error.verdict().as_str(),
                cause: Some(CauseFound {
                    message: error.to_string(),
                    pointer: error.pointer().to_owned(),
                    offset: error.offset(),
                }),
                identity: None,
                warnings: Vec::new(),
                accepts: false,
                unaccepted: None,
                retry: None,
                poison_record,
            },
            Ok(Decoded {
                envelope, warnings, ..
            }) => Self {
                verdict: "ok",
                cause: None,
                identity: Some(envelope.urn().into_owned()),
                warnings: warnings.iter().map(Warning::pointer).collect(),
                accepts: envelope.accepts(),
                unaccepted: envelope.unaccepted(),
                retry: Some(retried(&envelope)),
                poison_record,
            },
        }
    }
}

/// The block that the poison record would hold.
fn block(decoded: &Result<Decoded, DecodeError>, queue: &str) -> DeadLetter {
    let attempts = decoded
        .as_ref()
        .ok()
        .and_then(|decoded| decoded.envelope.attempts());
    let block = DeadLetter::new(
        Reason::Poison,
        queue,
        attempts.unwrap_or(0),
        SystemClock.unix_millis(),
    );
    match decoded {
        Ok(_) => block,
        Err(error) => block.error(error.to_string()).exception("DecodeError"),
    }
}

/// The envelope's text with one attempt more; absent, null and negative ones count as none
/// (contract §7.4).
fn retried(envelope: &Envelope) -> String {
    let attempts = envelope.attempts().unwrap_or(0).max(0).saturating_add(1);
    String::from_utf8_lossy(envelope.with_attempts(attempts).bytes()).into_owned()
}

/// Standard base64 with padding (RFC 4648 §4).
mod base64 {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    pub(crate) fn encode(bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
        for group in bytes.chunks(3) {
            let mut word = [0; 4];
            word[1..=group.len()].copy_from_slice(group);
            let word = u32::from_be_bytes(word);
            for place in 0..4 {
                let letter = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
                let padding = place > group.len();
                text.push(if padding { '=' } else { char::from(letter) });
            }
        }
        text
    }

    pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
        if !text.len().is_multiple_of(4) {
            return None;
        }
        let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
        let letters = text.strip_suffix(b"==").or(text.strip_suffix(b"="));
        for group in letters.unwrap_or(text).chunks(4) {
            let mut word = 0;
            for place in 0..4 {
                let value = match group.get(place) {
                    Some(letter) => ALPHABET.iter().position(|known| known == letter)?,
                    None => 0,
                };
                word = word << 6 | value;
            }
            let [.., high, middle, low] = word.to_be_bytes();
            bytes.extend_from_slice(&[high, middle, low][..group.len() - 1]);
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is printed for `input`, and whether every line could be read.
    fn inspected(input: &str, lines: bool) -> (Vec<Value>, bool) {
        let arguments = Arguments {
            help: false,
            lines,
            queue: "orders".to_owned(),
            file: None,
        };
        let mut output = Vec::new();
        let all_read = inspect(input.as_bytes(), &mut output, &arguments).unwrap();
        let objects = serde_json::Deserializer::from_slice(&output).into_iter();
        (objects.map(Result::unwrap).collect(), all_read)
    }

    fn record(found: &Value) -> Value {
        let record = base64::decode(found["poison_record"].as_str().unwrap().as_bytes()).unwrap();
        serde_json::from_slice(&record).unwrap()
    }

    #[test]
    fn an_envelope_is_shown_with_its_retry() {
        let body = r#"{"job":5,"urn":"urn:a","n":1e400,"attempts":-2}"#;
        let (found, _) = inspected(body, false);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["verdict"], "ok");
        assert_eq!(found[0]["cause"], Value::Null);
        assert_eq!(found[0]["identity"], "urn:a");
        assert_eq!(found[0]["warnings"], json!(["/job"]));
        assert_eq!(found[0]["accepts"], false);
        assert_eq!(found[0]["unaccepted"], "/meta/schema_version");
        assert_eq!(
            found[0]["retry"],
            r#"{"job":"urn:a","n":1e400,"attempts":1}"#
        );
    }

    #[test]
    fn a_poison_body_is_shown_with_its_cause_and_record() {
        let (found, _) = inspected("[1]", false);
        assert_eq!(found[0]["verdict"], "poison");
        assert_eq!(found[0]["retry"], Value::Null);
        let message = &found[0]["cause"]["message"];
        assert_eq!(
            message,
            "the body is an array, expected an object (at byte 0)"
        );
        let record = record(&found[0]);
        assert_eq!(record["raw"], "[1]");
        assert_eq!(record["dead_letter"]["original_queue"], "orders");
        assert_eq!(&record["dead_letter"]["error"], message);
    }

    #[test]
    fn each_line_gives_one_object() {
        let lines =
            ["{\"job\":\"j\"}", "", "\u{ff}", "{}"].map(|body| base64::encode(body.as_bytes()));
        let (found, all_read) = inspected(&lines.join("\r\n"), true);
        assert!(all_read);
        let verdicts: Vec<_> = found.iter().map(|found| &found["verdict"]).collect();
        assert_eq!(verdicts, ["ok", "poison", "poison", "no_identity"]);
        let (found, all_read) = inspected("e30=\n!!!!\ne30\n/w==\n", true);
        assert!(!all_read);
        assert!(found[1]["error"].is_string() && found[2]["error"].is_string());
        assert_eq!(record(&found[3])["raw_encoding"], "base64");
    }

    #[test]
    fn base64_goes_there_and_back() {
        for len in 0..70 {
            let bytes: Vec<u8> = (0..len).map(|at: u8| at.wrapping_mul(151)).collect();
            assert_eq!(
                base64::decode(base64::encode(&bytes).as_bytes()),
                Some(bytes)
            );
        }
    }
}
