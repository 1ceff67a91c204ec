// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a hypervisor does against speculation on the measured machine, as it says itself: it is part of what an exit costs.

/// How a line `@vulnerability name state` begins, which the monitor writes for each that its host's kernel knows.
const LINE: &str = "@vulnerability ";
/// What Turnstile's messages begin with.
const OWN: &str = "turnstile: ";
/// Words in what it says of a decision. It says nothing where nothing is needed.
const DECIDED: [&str; 2] = [" on exits", "each exit"];

/// How Linux calls a CPU that lacks a weakness.
const UNAFFECTED: &str = "Not affected";

/// What Turnstile does, by its messages and by what it was told.
pub fn of_turnstile(said: &str, told: Option<&str>) -> String {
    let decision = |line: &str| {
        let message = line.trim().strip_prefix(OWN)?;
        // On some machines it names the CPU first.
        let decision = message.split_once("): ").map_or(message, |(_, decision)| decision);
        DECIDED.iter().any(|word| decision.contains(word)).then(|| decision.to_owned())
    };
    match (said.lines().find_map(decision), told) {
        (Some(decision), _) => decision,
        (None, Some("off")) => "off".to_owned(),
        (None, _) => "nothing, which is what this CPU needs".to_owned(),
    }
}

/// What a Linux host does, by what its monitor reads from the kernel; empty if that said nothing.
pub fn of_linux(said: &str) -> String {
    let entries: Vec<(&str, &str)> =
        said.lines().filter_map(|line| line.trim().strip_prefix(LINE)?.split_once(' ')).collect();
    let acts = |(name, state): &(&str, &str)| match state.strip_prefix("Mitigation: ") {
        Some(mitigation) => {
            let parts = mitigation.split("; ").filter(|part| !part.ends_with(UNAFFECTED));
            Some(format!("{name}: {}", parts.collect::<Vec<_>>().join("; ")))
        }
        None => (*state != UNAFFECTED).then(|| format!("{name}: {state}")),
    };
    let all: Vec<String> = entries.iter().filter_map(acts).collect();
    match (entries.is_empty(), all.is_empty()) {
        (true, _) => String::new(),
        (false, true) => "nothing, for the kernel knows of no weakness of this CPU".to_owned(),
        (false, false) => all.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turnstile_says_what_is_not_usual() {
        let nothing = "nothing, which is what this CPU needs";
        assert_eq!(of_turnstile("turnstile: 4 CPUs\n", None), nothing);
        assert_eq!(of_turnstile("turnstile: 4 CPUs\n", Some("auto")), nothing);
        assert_eq!(of_turnstile("", Some("off")), "off");
        let said = "x\nturnstile: CPU 0 (MIDR 0x410fd0c0): a loop of 24 on each exit\r\n";
        assert_eq!(of_turnstile(said, Some("loop:24")), "a loop of 24 on each exit");
        let power = "turnstile: each exit flushes nothing, each entry nothing";
        assert_eq!(of_turnstile(power, None), "each exit flushes nothing, each entry nothing");
    }

    #[test]
    fn a_host_lists_what_it_does() {
        let said = "@vulnerability meltdown Not affected\r\n@vulnerability spectre_v2 Mitigation: CSV2, BHB; BHI: Not affected\r\n\
                    @vulnerability spec_store_bypass Vulnerable\r\n";
        assert_eq!(of_linux(said), "spectre_v2: CSV2, BHB; spec_store_bypass: Vulnerable");
        assert!(of_linux("@vulnerability meltdown Not affected\n").starts_with("nothing"));
        assert_eq!(of_linux("hello\n"), "");
    }
}
