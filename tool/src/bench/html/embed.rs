// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the page needs to carry strings that guests and users chose: they must stay text.

use std::fmt::Write;

use data_encoding::BASE64;
use sha2::{Digest, Sha256};

/// JSON for a `<script type="application/json">`: no character in it means anything to HTML.
///
/// Those characters occur only inside of JSON's strings, where they may be written by their number.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for character in text.chars() {
        if character.is_ascii() && !matches!(character, '<' | '>' | '&') {
            out.push(character);
        } else {
            for unit in character.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

/// Shows control characters, and those that turn the direction of writing, as what they are: out of place.
pub fn printable(page: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let replace = |c: char| if (c.is_control() && c != '\n') || turns(c) { '\u{fffd}' } else { c };
    page.chars().map(replace).collect()
}

/// The content security policy: nothing is fetched from anywhere, and no script runs but this one.
pub fn policy(script: &str) -> String {
    let hash = BASE64.encode(&Sha256::digest(script));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_meaning_without_markup() {
        let value = serde_json::json!({ "a": "</script><b>&amp; é 𝛼 \u{202e}" });
        let text = json(&value.to_string());
        assert!(text.is_ascii() && !text.contains(['<', '>', '&']), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn controls_are_shown() {
        assert_eq!(printable("a\u{1b}[31m\u{0}\nb\u{202e}"), "a\u{fffd}[31m\u{fffd}\nb\u{fffd}");
    }
}
