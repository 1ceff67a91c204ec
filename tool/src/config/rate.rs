// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rates as a configuration writes them.

use turnstile_bundle::PortSpec;

const ADVICE: &str = "write a whole number and kbit/s, Mbit/s, Gbit/s or Tbit/s, such as \"100Mbit/s\"";

/// Reads how much a port may send, in bits per second; the error says what is wrong with it and what to write instead.
pub fn parse_rate(text: &str) -> Result<u64, (String, String)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim();
    let wrong = |help: &str| (format!("`{text}` is not a rate"), help.to_owned());
    let Some((meant, factor)) = unit_meant(unit).filter(|_| !digits.is_empty()) else {
        return Err(wrong(ADVICE));
    };
    let rate = digits.parse().ok().and_then(|number: u64| number.checked_mul(factor));
    match rate.filter(|rate| PortSpec::RATES.contains(rate)) {
        None => Err((format!("a port cannot send `{text}`"), "give 64kbit/s to 1Tbit/s".to_owned())),
        Some(rate) if unit.strip_suffix("/s").unwrap_or(unit) == meant => Ok(rate),
        Some(rate) => Err(wrong(&format!("write bits per second, such as \"{}{meant}/s\"", rate / factor))),
    }
}

/// The unit that was meant, and how many bits it has.
fn unit_meant(unit: &str) -> Option<(&'static str, u64)> {
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(&unit);
    match unit {
        "kbit" | "kb" | "k" => Some(("kbit", 1_000)),
        "mbit" | "mb" | "m" => Some(("Mbit", 1_000_000)),
        "gbit" | "gb" | "g" => Some(("Gbit", 1_000_000_000)),
        "tbit" | "tb" | "t" => Some(("Tbit", 1_000_000_000_000)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for (text, rate) in [
            ("64kbit/s", 64_000),
            ("100Mbit/s", 100_000_000),
            ("100 Mbit", 100_000_000),
            ("1Gbit/s", 1_000_000_000),
            ("1Tbit", 1_000_000_000_000),
        ] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for (text, advice) in [
            ("64Kbit", "\"64kbit/s\""),
            ("5Mbps", "\"5Mbit/s\""),
            ("2g", "\"2Gbit/s\""),
            ("9MB/s", "\"9Mbit/s\""),
        ] {
            assert!(parse_rate(text).unwrap_err().1.contains(advice), "{text}");
        }
        for text in ["", "Mbit", "100", "1.5Gbit/s", "-1Gbit/s", "1Mbit/h", "1Mbit1", "100%"] {
            assert_eq!(parse_rate(text).unwrap_err().1, ADVICE, "{text}");
        }
        for text in ["0Mbit/s", "63kbit/s", "2Tbit/s", "1001Gbit/s", "99999999999999999999Gbit/s"] {
            assert_eq!(parse_rate(text).unwrap_err().1, "give 64kbit/s to 1Tbit/s", "{text}");
        }
    }
}
