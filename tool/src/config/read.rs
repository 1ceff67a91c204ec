// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads typed values out of a TOML table, keeping their places and collecting what is wrong.
//!
//! A deserializer stops at the first error; a user who fixes a file wants to see all of them.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, did_you_mean};
use super::size::{SIZE_ADVICE, parse_size};

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

/// Keys that a table has on other machines: names, and what follows one in a sentence, with an advice behind a colon.
pub type Others = [(&'static [&'static str], &'static str)];

/// One table of the file.
pub struct Reader<'a, 'p> {
    table: &'a DeTable<'a>,
    /// Where the table is: its header.
    pub span: Range<usize>,
    problems: &'p mut Vec<Problem>,
}

impl<'a, 'p> Reader<'a, 'p> {
    /// Starts reading a table; keys that are not `known` are problems. Of those among `others` there is more to say.
    pub fn new(
        table: &'a DeTable<'a>,
        span: Range<usize>,
        known: &[&str],
        others: &Others,
        problems: &'p mut Vec<Problem>,
    ) -> Self {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if let Some((_, more)) = others.iter().find(|(names, _)| names.contains(&name)) {
                let (what, help) = more.split_once(": ").unwrap_or((more, ""));
                problems.push(Problem::new(key.span(), format!("`{name}` {what}"), help));
            } else if !known.contains(&name) {
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

    /// Starts reading a table in this one.
    pub fn inner<'q>(
        &'q mut self,
        table: &'a DeTable<'a>,
        span: Range<usize>,
        known: &[&str],
    ) -> Reader<'a, 'q> {
        Reader::new(table, span, known, &[], self.problems)
    }

    /// Records that a value of a key is not what is wanted.
    pub fn wrong_type(&mut self, key: &str, value: &Spanned<DeValue<'a>>, wanted: &str) {
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

    /// Reads `true` or `false`.
    pub fn boolean(&mut self, key: &str) -> Option<At<bool>> {
        let value = self.get(key)?;
        match value.get_ref().as_bool() {
            Some(boolean) => Some(At::new(boolean, value.span())),
            None => {
                self.wrong_type(key, value, "true or false");
                None
            }
        }
    }

    /// Reads a whole number that is not negative.
    pub fn number(&mut self, key: &str) -> Option<At<u64>> {
        let value = self.get(key)?;
        let number = self.whole(key, value, "a whole number", "give 1 or more")?;
        Some(At::new(number, value.span()))
    }

    /// Reads a list of whole numbers, each with its own place; `None` if one of them is wrong, lest the list
    /// be judged by the length that is left.
    pub fn numbers(&mut self, key: &str) -> Option<At<Vec<At<u64>>>> {
        const WANTED: &str = "a list of whole numbers such as [0, 1]";

        let value = self.get(key)?;
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(key, value, WANTED);
            return None;
        };
        let mut numbers = Some(Vec::new());
        for item in array.iter() {
            match (self.whole(key, item, WANTED, "give 0 or more"), &mut numbers) {
                (Some(number), Some(numbers)) => numbers.push(At::new(number, item.span())),
                _ => numbers = None,
            }
        }
        Some(At::new(numbers?, value.span()))
    }

    /// Says whether a key has a list.
    pub fn is_list(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.get_ref().is_array())
    }

    /// Reads one whole number; `at_least` is the advice for those that are negative.
    fn whole(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'a>>,
        wanted: &str,
        at_least: &str,
    ) -> Option<u64> {
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(key, value, wanted);
            return None;
        };
        // Wider than the result, so that the sign is known of all but absurd numbers, and -0 is zero.
        match i128::from_str_radix(integer.as_str(), integer.radix()).map(u64::try_from) {
            Ok(Ok(number)) => return Some(number),
            _ if integer.as_str().starts_with('-') => {
                self.problem(value.span(), format!("`{key}` must not be negative"), at_least);
            }
            _ => {
                let what = format!("this number for `{key}` is too large");
                self.problem(value.span(), what, "give a number below 2^64");
            }
        }
        None
    }

    /// Reads a size such as "512MiB", in bytes.
    pub fn size(&mut self, key: &str) -> Option<At<u64>> {
        let value = self.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            let negative =
                value.get_ref().as_integer().is_some_and(|number| number.as_str().starts_with('-'));
            let what = match negative {
                true => format!("`{key}` must be a size in quotes, not a negative number"),
                false => {
                    let found = with_article(value.get_ref().type_str());
                    format!("`{key}` must be a size in quotes, not {found}")
                }
            };
            self.problem(value.span(), what, SIZE_ADVICE);
            return None;
        };
        match parse_size(text) {
            Ok(bytes) => Some(At::new(bytes, value.span())),
            Err((what, help)) => {
                self.problem(value.span(), what, help);
                None
            }
        }
    }

    /// Reads a string, or a list of strings.
    pub fn word_or_words(&mut self, key: &str) -> Option<Result<At<String>, Vec<At<String>>>> {
        const WANTED: &str = "a word, or a list of words";

        let value = self.get(key)?;
        if let Some(word) = value.get_ref().as_str() {
            return Some(Ok(At::new(word.to_owned(), value.span())));
        }
        if !value.get_ref().is_array() {
            self.wrong_type(key, value, WANTED);
            return None;
        }
        Some(Err(self.words(key, WANTED)))
    }

    /// Returns the items of a list, none if there is no list; `wanted` says what it is.
    pub fn list(&mut self, key: &str, wanted: &str) -> Vec<&'a Spanned<DeValue<'a>>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(key, value, wanted);
            return Vec::new();
        };
        array.iter().collect()
    }

    /// Reads a list of strings, which is empty if there is none; `wanted` says what it is.
    pub fn words(&mut self, key: &str, wanted: &str) -> Vec<At<String>> {
        let mut words = Vec::new();
        for item in self.list(key, wanted) {
            match item.get_ref().as_str() {
                Some(word) => words.push(At::new(word.to_owned(), item.span())),
                None => self.wrong_type(key, item, wanted),
            }
        }
        words
    }

    /// Reads one of a few words.
    pub fn choice<T: Copy>(&mut self, key: &str, choices: &[(&'static str, T)]) -> Option<At<T>> {
        let word = self.string(key)?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == word.value) {
            return Some(At::new(*value, word.span));
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let help = did_you_mean(&word.value, &names);
        self.problem(word.span, format!("`{key}` cannot be `{}`", word.value), help);
        None
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}

/// Pairs choices with their names.
pub fn named<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> Vec<(&'static str, T)> {
    all.iter().map(|&choice| (name(choice), choice)).collect()
}
