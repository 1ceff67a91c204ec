// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The serial line as plain text with several VMs, as `run --plain` has it: each line says whose it is.

use turnstile::isa::Isa;

use super::scenario::{Ending, Record, Scenario, Step, guest};

/// The VMs.
const VMS: [&str; 2] = ["one", "two"];
/// How the hypervisor begins its own lines.
const OWN: &str = "turnstile: ";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let config = VMS.map(|name| guest(name, "selftest", "32MiB", "cmdline = \"test=gic\""));
    let steps = vec![Step::Text("turnstile: one starts"), Step::Text("all VMs have stopped")];
    let scenario = Scenario::at(Isa::Arm64, "plain/several-vms", config.concat(), steps);
    // The hypervisor's command line of `run --plain`.
    let scenario = scenario.counted().ending(Ending::Silent).prepare(|boot, _| {
        boot.append = String::new();
        Ok(())
    });
    vec![scenario.judge(|record: &Record| judge(&record.text))]
}

/// Lines of VMs begin with their names, and nowhere else is a name; each VM said everything, and they interrupted each other.
fn judge(text: &str) -> Result<(), String> {
    let begin = text.find("turnstile: one starts").unwrap_or(0);
    let text = text.get(begin..).unwrap_or_default();
    let mut said = VMS.map(|_| String::new());
    let (mut last, mut turns) = (None, 0);
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with(OWN)) {
        let whose = VMS.iter().position(|name| line.starts_with(&format!("{name}: ")));
        let Some(vm) = whose else { return Err(format!("nobody says \"{line}\"")) };
        let (_, piece) = line.split_once(": ").unwrap_or_default();
        if let Some(other) = VMS.iter().find(|name| piece.contains(&format!("{name}: "))) {
            return Err(format!("\"{line}\" goes on as {other}'s"));
        }
        turns += usize::from(last.is_some_and(|last| last != vm));
        last = Some(vm);
        said[vm].push_str(piece);
    }
    for (name, said) in VMS.iter().zip(&said) {
        if !said.contains("@done passed=") || !said.contains(" failed=0") {
            return Err(format!("{name} did not say that nothing failed"));
        }
        if !text.contains(&format!("{OWN}{name} powered off")) {
            return Err(format!("the hypervisor did not say that {name} powered off"));
        }
    }
    if turns > VMS.len() { Ok(()) } else { Err("they did not write at the same time".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "hello\r\nturnstile: one starts\r\none: @bo\r\ntwo: @boot\r\none: ot\r\ntwo: @done passed=3 failed=0\r\n\
                        \r\nturnstile: two powered off\r\none: @done passed=3 failed=0\r\n\r\nturnstile: one powered off\r\n";

    #[test]
    fn each_line_says_whose_it_is() {
        assert_eq!(judge(GOOD), Ok(()));
        for (from, to) in [
            ("one: ot", "ot"),
            ("@bo\r\n", "@bo"),
            ("two: @done passed=3 failed=0", "two: @done passed=3 failed=1"),
            ("turnstile: two powered off", "turnstile: two crashed"),
            ("\r\none: ot", ""),
        ] {
            assert!(judge(&GOOD.replace(from, to)).is_err(), "{from}");
        }
    }
}
