// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `NAME@MILLISECONDS`: a service that is to be killed, and when.

use std::time::Duration;

/// A service that is to be killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Its name.
    pub service: String,
    /// How long after the hypervisor is there.
    pub after: Duration,
}

/// Reads one; the error says what to write.
pub fn parse(text: &str) -> Result<Kill, String> {
    let parts = text.split_once('@').filter(|(name, _)| !name.is_empty());
    let time = parts.and_then(|(name, time)| Some((name, time.parse().ok()?)));
    let (name, time) = time.ok_or("write the service's name, @ and milliseconds, such as console@1500")?;
    Ok(Kill { service: name.to_owned(), after: Duration::from_millis(time) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_read() {
        let kill = parse("console@1500").unwrap();
        assert_eq!((kill.service.as_str(), kill.after), ("console", Duration::from_millis(1500)));
        for wrong in ["console", "@5", "console@", "console@2s", "console@-1"] {
            assert!(parse(wrong).unwrap_err().contains("console@1500"), "{wrong}");
        }
    }
}
