// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes as a configuration writes them.

/// What to write for a size, when what was written does not tell more.
pub const SIZE_ADVICE: &str = "write a whole number and KiB, MiB, GiB or TiB, such as \"512MiB\"";

/// Reads a size; the error says what is wrong with it and what to write instead.
pub fn parse_size(text: &str) -> Result<u64, (String, String)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim();
    let wrong = |help: &str| (format!("`{text}` is not a size"), help.to_owned());
    let Some((meant, shift)) = unit_meant(unit).filter(|_| !digits.is_empty()) else {
        return Err(wrong(SIZE_ADVICE));
    };
    let bytes = digits.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift));
    match bytes {
        None => Err((format!("`{text}` is too large for a size"), "give a size below 2^64 bytes".to_owned())),
        Some(bytes) if unit == meant => Ok(bytes),
        // A zero would be refused in its turn.
        Some(0) => Err(wrong(SIZE_ADVICE)),
        Some(bytes) => {
            let number = bytes >> shift;
            Err(wrong(&format!("write a whole number and KiB, MiB, GiB or TiB, such as \"{number}{meant}\"")))
        }
    }
}

/// The unit that was meant, and how far it shifts.
fn unit_meant(unit: &str) -> Option<(&'static str, u32)> {
    match unit.to_ascii_lowercase().as_str() {
        "k" | "kb" | "kib" => Some(("KiB", 10)),
        "m" | "mb" | "mib" => Some(("MiB", 20)),
        "g" | "gb" | "gib" => Some(("GiB", 30)),
        "t" | "tb" | "tib" => Some(("TiB", 40)),
        _ => None,
    }
}

/// Writes a size as a configuration would have it.
pub fn show_size(bytes: u64) -> String {
    match bytes {
        0 => "0MiB".to_owned(),
        _ if bytes.is_multiple_of(1 << 40) => format!("{}TiB", bytes >> 40),
        _ if bytes.is_multiple_of(1 << 30) => format!("{}GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ => format!("{}KiB", bytes.div_ceil(1 << 10)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("2 GiB"), Ok(2 << 30));
        assert_eq!(parse_size("64KiB"), Ok(64 << 10));
        assert_eq!(parse_size("1TiB"), Ok(1 << 40));
        for (text, advice) in [("300M", "\"300MiB\""), ("2gb", "\"2GiB\""), ("3 T", "\"3TiB\"")] {
            assert!(parse_size(text).unwrap_err().1.contains(advice), "{text}");
        }
        for text in ["", "MiB", "7", "7PiB", "7 bytes", "0MB", "1.5GiB", "-7MiB", "7MiB7"] {
            assert_eq!(parse_size(text).unwrap_err().1, SIZE_ADVICE, "{text}");
        }
        for text in ["99999999999999999999GiB", "9999999999999GiB", "99999999999999999999999MB"] {
            assert!(parse_size(text).unwrap_err().0.contains("too large"), "{text}");
        }
        assert_eq!(show_size(512 << 20), "512MiB");
        assert_eq!(show_size(3 << 30), "3GiB");
        assert_eq!(show_size(2 << 40), "2TiB");
    }
}
