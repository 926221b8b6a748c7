//! Rules for every text.

use super::files::Files;

/// No path of the machine that somebody worked on.
pub(super) fn no_machine_paths(files: &Files) -> Vec<String> {
    // Put together here, so that this file keeps the rule itself.
    let folders = ["work", "root", "home", "Users"].map(|folder| format!("/{folder}/"));
    let starts_a_path = |line: &str, folder: &str| {
        line.match_indices(folder).any(|(at, _)| {
            // `src/root/` and `https://host/home/` are no such paths.
            let before = line[..at].chars().next_back();
            before.is_none_or(|c| !(c.is_alphanumeric() || "./_-)}".contains(c)))
        })
    };
    files
        .lines()
        .filter(|(_, line)| folders.iter().any(|folder| starts_a_path(line, folder)))
        .map(|(place, _)| format!("{place}: a path of one machine"))
        .collect()
}

/// No package registry by name: which one is used is the user's configuration.
pub(super) fn no_registry_hosts(files: &Files) -> Vec<String> {
    let hosts = [
        ["index.crates", ".io"],
        ["static.crates", ".io"],
        ["pypi", ".org"],
        ["pythonhosted", ".org"],
        ["repo1.maven", ".org"],
        ["repo.maven.apache", ".org"],
        ["registry.npmjs", ".org"],
        ["proxy.golang", ".org"],
        ["deb.debian", ".org"],
        ["arti", "factory"],
    ]
    .map(|parts| parts.concat());
    files
        .lines()
        .filter(|(_, line)| hosts.iter().any(|host| line.contains(host.as_str())))
        .map(|(place, _)| format!("{place}: the host of a registry"))
        .collect()
}

/// No blanks at the end of a line, no tab, no carriage return, and one newline at the end.
pub(super) fn clean_lines(files: &Files) -> Vec<String> {
    let mut complaints: Vec<String> = files
        .lines()
        .filter(|(_, line)| line.ends_with(' ') || line.contains('\t'))
        .map(|(place, _)| format!("{place}: a tab, or a blank at the end"))
        .collect();
    for (path, text) in files.iter() {
        if text.contains('\r') {
            complaints.push(format!("{path}: a carriage return"));
        }
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            complaints.push(format!("{path}: not one newline at the end"));
        }
    }
    complaints
}

/// The contract is cited as `contract §7.5`: so that a search for a rule finds all that keep it.
pub(super) fn citations(files: &Files) -> Vec<String> {
    let odd = [
        "\u{a7} ",
        "Contract \u{a7}",
        "contract section",
        "contract, \u{a7}",
    ];
    files
        .lines()
        .filter(|(place, line)| {
            !place.starts_with("xtask/src/tidy/") && odd.iter().any(|odd| line.contains(odd))
        })
        .map(|(place, _)| format!("{place}: cite the contract as `contract \u{a7}7.5`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_machine_is_told_from_others() {
        let home = ["/ho", "me/"].concat();
        let text = format!(
            "cd {home}me\n\"{home}me\"\nsrc{home}x\n{{root}}{home}\nhttps://a.example{home}b\n"
        );
        let complaints = no_machine_paths(&Files::from([("a.md", text.as_str())]));
        assert_eq!(
            complaints,
            [
                "a.md:1: a path of one machine",
                "a.md:2: a path of one machine"
            ]
        );
    }

    #[test]
    fn a_registry_host_is_found() {
        let text = ["see https://pypi", ".org/x\n"].concat();
        let complaints = no_registry_hosts(&Files::from([("a.md", text.as_str())]));
        assert_eq!(complaints.len(), 1);
    }

    #[test]
    fn ragged_lines_are_found() {
        for text in ["a \n", "a\tb\n", "a\r\n", "a", "a\n\n"] {
            let complaints = clean_lines(&Files::from([("a.md", text)]));
            assert_eq!(complaints.len(), 1, "{text:?}");
        }
        assert_eq!(clean_lines(&Files::from([("a.md", "a\n\nb\n")])), [""; 0]);
    }

    #[test]
    fn odd_citations_are_found() {
        let text = "contract \u{a7}7.5\nsee (\u{a7}9)\n\u{a7} 7\nContract \u{a7}7\n";
        assert_eq!(citations(&Files::from([("a.rs", text)])).len(), 2);
    }
}
