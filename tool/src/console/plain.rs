// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a serial line without frames says about the end of the VMs.
//!
//! The hypervisor's lines are found by their text, so a guest can imitate them: whoever has to rely on the exit
//! code uses frames.

/// How every line of the hypervisor's own begins.
const OWN: &str = "turnstile: ";
/// The longest line that is looked at.
const MAX_LINE: usize = 1024;

/// The hypervisor's lines so far.
#[derive(Debug)]
pub struct Plain {
    /// The names of the VMs, and whether each one's last end was a crash.
    vms: Vec<(String, bool)>,
    line: Vec<u8>,
    ended: bool,
}

impl Plain {
    /// Starts with the names of the VMs.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let vms = names.into_iter().map(|name| (name, false)).collect();
        Plain { vms, line: Vec::new(), ended: false }
    }

    /// Takes what came over the line.
    pub fn hear(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\r' => {}
                b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    self.line(&String::from_utf8_lossy(&line));
                }
                _ if self.line.len() < MAX_LINE => self.line.push(byte),
                _ => {}
            }
        }
    }

    /// How many VMs crashed and stayed stopped, if the hypervisor said that all have stopped.
    pub fn done(&self) -> Option<u8> {
        let crashed = self.vms.iter().filter(|(_, crashed)| *crashed).count();
        self.ended.then(|| u8::try_from(crashed).unwrap_or(u8::MAX))
    }

    fn line(&mut self, line: &str) {
        let Some(told) = line.strip_prefix(OWN) else { return };
        self.ended |= told == "all VMs have stopped";
        for (name, crashed) in &mut self.vms {
            match told.strip_prefix(name.as_str()) {
                Some(" crashed") => *crashed = true,
                // A VM that crashed and was started again has had another end.
                Some(" powered off" | " asked for a reset" | " was stopped") => *crashed = false,
                Some(why) if why.starts_with(&format!(": {name} does not start: ")) => *crashed = true,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &str) -> Option<u8> {
        let mut plain = Plain::new(["one".to_owned(), "two".to_owned()]);
        // As it comes from the serial line.
        lines.replace('\n', "\r\n").as_bytes().chunks(3).for_each(|piece| plain.hear(piece));
        plain.done()
    }

    #[test]
    fn end_is_known_by_its_line() {
        let end = "turnstile: all VMs have stopped\n";
        assert_eq!(told("turnstile: one starts\none: hello\n"), None);
        assert_eq!(told(&format!("one: {end}")), None, "a guest's line");
        assert_eq!(told(&format!("turnstile: one powered off\n{end}")), Some(0));
        assert_eq!(told(&format!("turnstile: one: it jumped\n\nturnstile: one crashed\n{end}")), Some(1));
        assert_eq!(told(&format!("turnstile: two: two does not start: no memory\n{end}")), Some(1));
        let again =
            "turnstile: one crashed\nturnstile: one starts again (boot 2)\nturnstile: one powered off\n";
        assert_eq!(told(&format!("{again}{end}")), Some(0));
    }
}
