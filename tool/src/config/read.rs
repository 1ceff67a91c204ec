// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads typed values out of a TOML table, keeping their places and collecting what is wrong.
//!
//! A deserializer stops at the first error; a user who fixes a file wants to see all of them.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, did_you_mean};

/// A value and where it is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its bytes in the file.
    pub span: Range<usize>,
}

impl<T> At<T> {
    /// Puts a value at a place.
    pub fn new(value: T, span: Range<usize>) -> Self {
        At { value, span }
    }
}

/// One table of the file.
pub struct Reader<'a, 'p> {
    table: &'a DeTable<'a>,
    /// Where the table is: its header.
    pub span: Range<usize>,
    problems: &'p mut Vec<Problem>,
}

impl<'a, 'p> Reader<'a, 'p> {
    /// Starts reading a table; keys that are not `known` are problems.
    pub fn new(
        table: &'a DeTable<'a>,
        span: Range<usize>,
        known: &[&str],
        problems: &'p mut Vec<Problem>,
    ) -> Self {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let help = did_you_mean(name, known);
                problems.push(Problem::new(key.span(), format!("unknown key `{name}`"), help));
            }
        }
        Reader { table, span, problems }
    }

    /// Records a problem.
    pub fn problem(&mut self, span: Range<usize>, what: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem::new(span, what, help));
    }

    fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.iter().find(|(name, _)| name.get_ref().as_ref() == key).map(|(_, value)| value)
    }

    fn wrong_type(&mut self, key: &str, value: &Spanned<DeValue<'a>>, wanted: &str) {
        let found = value.get_ref().type_str();
        self.problem(value.span(), format!("`{key}` must be {wanted}, not {}", with_article(found)), "");
    }

    /// Reads a string.
    pub fn string(&mut self, key: &str) -> Option<At<String>> {
        let value = self.get(key)?;
        match value.get_ref().as_str() {
            Some(text) => Some(At::new(text.to_owned(), value.span())),
            None => {
                self.wrong_type(key, value, "a string");
                None
            }
        }
    }

    /// Reads a string that must be there; `help` says what belongs there.
    pub fn required_string(&mut self, key: &str, help: &str) -> Option<At<String>> {
        if self.get(key).is_none() {
            self.problem(self.span.clone(), format!("`{key}` is missing"), help);
        }
        self.string(key)
    }

    /// Reads a whole number that is not negative.
    pub fn number(&mut self, key: &str) -> Option<At<u64>> {
        let value = self.get(key)?;
        let number = as_number(value.get_ref());
        if number.is_none() {
            self.wrong_type(key, value, "a whole number");
        }
        Some(At::new(number?, value.span()))
    }

    /// Reads a list of whole numbers, each with its own place.
    pub fn numbers(&mut self, key: &str) -> Option<At<Vec<At<u64>>>> {
        let value = self.get(key)?;
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(key, value, "a list of whole numbers such as [0, 1]");
            return None;
        };
        let mut numbers = Vec::new();
        for item in array.iter() {
            match as_number(item.get_ref()) {
                Some(number) => numbers.push(At::new(number, item.span())),
                None => self.wrong_type(key, item, "a list of whole numbers such as [0, 1]"),
            }
        }
        Some(At::new(numbers, value.span()))
    }

    /// Reads a size such as "512MiB", in bytes.
    pub fn size(&mut self, key: &str) -> Option<At<u64>> {
        let value = self.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            let help = "write a number and KiB, MiB or GiB, such as \"512MiB\"";
            let found = with_article(value.get_ref().type_str());
            self.problem(value.span(), format!("`{key}` must be a size in quotes, not {found}"), help);
            return None;
        };
        match parse_size(text) {
            Ok(bytes) => Some(At::new(bytes, value.span())),
            Err(help) => {
                self.problem(value.span(), format!("`{text}` is not a size"), help);
                None
            }
        }
    }

    /// Reads one of a few words.
    pub fn choice<T: Copy>(&mut self, key: &str, choices: &[(&'static str, T)]) -> Option<At<T>> {
        let word = self.string(key)?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == word.value) {
            return Some(At::new(*value, word.span));
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let help = did_you_mean(&word.value, &names);
        self.problem(word.span, format!("`{}` is no value of `{key}`", word.value), help);
        None
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}

fn as_number(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Reads a size; the error says what to write instead.
fn parse_size(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim();
    let shift = match unit {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => {
            let meant = match unit.to_ascii_lowercase().as_str() {
                "k" | "kb" | "kib" => "KiB",
                "g" | "gb" | "gib" => "GiB",
                _ => "MiB",
            };
            let number = if digits.is_empty() { "512" } else { digits };
            return Err(format!("write a number and KiB, MiB or GiB, such as \"{number}{meant}\""));
        }
    };
    let number = digits.parse::<u64>().map_err(|_| "write a number first, such as \"512MiB\"".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "write a size below 2^64 bytes".to_owned())
}

/// Writes a size as a configuration would have it.
pub fn show_size(bytes: u64) -> String {
    match bytes {
        0 => "0MiB".to_owned(),
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
        assert!(parse_size("512M").unwrap_err().contains("\"512MiB\""));
        assert!(parse_size("2gb").unwrap_err().contains("\"2GiB\""));
        assert!(parse_size("MiB").is_err());
        assert!(parse_size("99999999999999999999GiB").is_err());
        assert!(parse_size("9999999999999GiB").is_err());
        assert_eq!(show_size(512 << 20), "512MiB");
        assert_eq!(show_size(3 << 30), "3GiB");
    }
}
