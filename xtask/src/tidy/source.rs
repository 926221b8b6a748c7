//! Rules for Rust source.

use super::files::Files;

/// A file may be this long without a reason.
const LINES: usize = 600;

/// Longer files, with the reason. An entry that is not needed is an error too.
const LONG: &[(&str, &str)] = &[];

/// Nothing is left to be done later.
pub(super) fn no_stubs(files: &Files) -> Vec<String> {
    let stubs = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    complain(files, |line| {
        stubs
            .iter()
            .find(|stub| code(line).contains(stub.as_str()))
            .map(|stub| format!("{stub}…) is left"))
    })
}

/// A lint that is switched off, and a test that is not run, say why.
pub(super) fn reasons(files: &Files) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in files.ending(".rs") {
        for opening in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
            for (at, _) in text.match_indices(opening) {
                let attribute = text[at..].split(")]").next().unwrap_or_default();
                if is_code(text, at) && !attribute.contains("reason =") {
                    complaints.push(format!("{path}:{}: no reason", line_of(text, at)));
                }
            }
        }
        for (at, _) in text.match_indices("#[ignore]") {
            if is_code(text, at) {
                complaints.push(format!("{path}:{}: no reason", line_of(text, at)));
            }
        }
    }
    complaints
}

/// A thing is named for what it is (`design.md`, Names).
pub(super) fn names(files: &Files) -> Vec<String> {
    const VAGUE: &[&str] = &["Manager", "Helper", "Helpers", "Util", "Utils", "Impl"];
    const VAGUE_MODULES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc"];
    let mut complaints = complain(files, |line| {
        let words: Vec<&str> = code(line).split_whitespace().collect();
        let name = words.windows(2).find_map(|pair| {
            matches!(pair[0], "struct" | "enum" | "trait" | "type").then_some(pair[1])
        })?;
        let name = name.split(|c: char| !c.is_alphanumeric()).next()?;
        let vague = VAGUE.iter().find(|word| name.ends_with(**word))?;
        Some(format!("`{name}` is a {vague} of what?"))
    });
    for (path, _) in files.ending(".rs") {
        let stem = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let stem = stem.rsplit('/').next().unwrap_or(stem);
        // What the integration tests of a package share goes by that name everywhere.
        if VAGUE_MODULES.contains(&stem) && !path.contains("/tests/common/") {
            complaints.push(format!("{path}: a module is named for the thing it holds"));
        }
    }
    complaints
}

/// A file that grows past [`LINES`] wants a reason.
pub(super) fn sizes(files: &Files) -> Vec<String> {
    sizes_but(files, LONG)
}

fn sizes_but(files: &Files, long: &[(&str, &str)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in files.ending(".rs") {
        let lines = text.lines().count();
        let listed = long.iter().any(|(known, _)| *known == path);
        if lines > LINES && !listed {
            complaints.push(format!(
                "{path}: {lines} lines; split it, or give the reason"
            ));
        }
        if lines <= LINES && listed {
            complaints.push(format!(
                "{path}: needs its entry in the list of long files no more"
            ));
        }
    }
    for (path, _) in long {
        if files.get(path).is_none() {
            complaints.push(format!("{path}: in the list of long files, but not there"));
        }
    }
    complaints
}

fn complain(files: &Files, rule: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let lines = files.lines().filter(|(place, _)| place.contains(".rs:"));
    lines
        .filter_map(|(place, line)| Some(format!("{place}: {}", rule(line)?)))
        .collect()
}

/// A line without its comment, as far as one can tell without a parser.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Whether what stands at `at` is an attribute, not text in a comment or a string.
fn is_code(text: &str, at: usize) -> bool {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    text[start..at].trim().is_empty()
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Files {
        Files::from([("src/a.rs", text)])
    }

    #[test]
    fn stubs_are_found_in_code_only() {
        let stub = ["to", "do!()"].concat();
        assert_eq!(no_stubs(&file(&format!("fn f() {{ {stub} }}\n"))).len(), 1);
        assert_eq!(no_stubs(&file(&format!("// {stub}\n"))), [""; 0]);
    }

    #[test]
    fn an_attribute_without_a_reason_is_found() {
        let text = [
            "#[expect(a)]",
            "#[expect(\n    a,\n    reason = \"b\"\n)]",
            "// #[allow(a)]",
            "#[ignore]",
            "#[ignore = \"slow\"]",
        ];
        assert_eq!(
            reasons(&file(&text.join("\n"))),
            ["src/a.rs:1: no reason", "src/a.rs:7: no reason"]
        );
    }

    #[test]
    fn vague_names_are_found() {
        let vague = ["pub struct Queue", "Manager<T> {\n"].concat();
        assert_eq!(names(&file(&vague)).len(), 1);
        assert_eq!(
            names(&file("struct Managed;\nimpl Manager for A {}\n")),
            [""; 0]
        );
        assert_eq!(names(&Files::from([("src/utils/mod.rs", "\n")])).len(), 1);
    }

    #[test]
    fn a_long_file_is_found() {
        let (short, long) = (file(&"a\n".repeat(LINES)), file(&"a\n".repeat(LINES + 1)));
        let listed = [("src/a.rs", "why")];
        assert_eq!(sizes_but(&short, &[]), [""; 0]);
        assert_eq!(sizes_but(&long, &[]).len(), 1);
        assert_eq!(sizes_but(&long, &listed), [""; 0]);
        assert_eq!(sizes_but(&short, &listed).len(), 1, "a stale entry");
        assert_eq!(sizes_but(&Files::from([]), &listed).len(), 1, "a lost one");
    }
}
