// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tokens of a Rust source, as far as names and modules go: comments, numbers, lifetimes and what stands in strings are left out.

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or a keyword.
    Word(String),
    /// The text of a string.
    Text(String),
    /// `::`
    Colons,
    /// `->` or `=>`: its angle closes nothing.
    Arrow,
    /// Any other sign.
    Sign(char),
}

/// A token and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Its line, from 1.
    pub line: usize,
}

impl Token {
    /// Whether it is this word.
    pub fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    /// Whether it is this sign.
    pub fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }

    /// The word that it is.
    pub fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Splits a source into tokens.
pub fn tokens(source: &str) -> Vec<Token> {
    let mut reader = Reader { rest: source, line: 1 };
    let mut tokens = Vec::new();
    while let Some(next) = reader.rest.chars().next() {
        let line = reader.line;
        if let Some(kind) = reader.token(next) {
            tokens.push(Token { kind, line });
        }
    }
    tokens
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    /// Takes so many bytes.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    /// Takes everything up to the end of `end`, or of the source.
    fn take_through(&mut self, end: &str) -> &'a str {
        let length = self.rest.find(end).map_or(self.rest.len(), |at| at + end.len());
        self.take(length)
    }

    fn take_word(&mut self) -> &'a str {
        let is_end = |sign: char| !(sign.is_alphanumeric() || sign == '_');
        let length = self.rest.find(is_end).unwrap_or(self.rest.len());
        self.take(length)
    }

    /// Takes what begins with `next`; nothing comes of comments, blanks and literals other than strings.
    fn token(&mut self, next: char) -> Option<Kind> {
        if self.rest.starts_with("//") {
            self.take_through("\n");
            return None;
        }
        if self.rest.starts_with("/*") {
            self.block_comment();
            return None;
        }
        if let Some(hashes) = raw_string(self.rest) {
            let start = self.rest.find('"').map_or(0, |quote| quote + 1);
            self.take(start);
            let end = format!("\"{}", "#".repeat(hashes));
            let text = self.take_through(&end);
            return Some(Kind::Text(text.trim_end_matches(end.as_str()).to_owned()));
        }
        if self.rest.starts_with("r#") {
            self.take(2);
            return Some(Kind::Word(self.take_word().to_owned()));
        }
        if let Some(prefix) = ["\"", "b\"", "c\""].iter().find(|prefix| self.rest.starts_with(**prefix)) {
            self.take(prefix.len());
            return Some(Kind::Text(self.string()));
        }
        if next == '\'' || self.rest.starts_with("b'") {
            self.character_or_lifetime();
            return None;
        }
        if next.is_ascii_digit() {
            self.take_word();
            return None;
        }
        if next.is_alphabetic() || next == '_' {
            return Some(Kind::Word(self.take_word().to_owned()));
        }
        for (sign, kind) in [("::", Kind::Colons), ("->", Kind::Arrow), ("=>", Kind::Arrow)] {
            if self.rest.starts_with(sign) {
                self.take(2);
                return Some(kind);
            }
        }
        self.take(next.len_utf8());
        (!next.is_whitespace()).then_some(Kind::Sign(next))
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            let open = self.rest.find("/*").unwrap_or(self.rest.len());
            let close = self.rest.find("*/").unwrap_or(self.rest.len());
            depth = if open < close { depth + 1 } else { depth - 1 };
            self.take(open.min(close) + 2);
            if depth <= 0 || self.rest.is_empty() {
                return;
            }
        }
    }

    /// Takes the rest of a string whose first quote is taken.
    fn string(&mut self) -> String {
        let mut escaped = false;
        let end = self.rest.find(|sign: char| {
            let ends = sign == '"' && !escaped;
            escaped = sign == '\\' && !escaped;
            ends
        });
        let text = self.take(end.unwrap_or(self.rest.len())).to_owned();
        self.take(1);
        text
    }

    fn character_or_lifetime(&mut self) {
        self.take_through("'");
        let mut signs = self.rest.chars();
        match (signs.next(), signs.next()) {
            (Some('\\'), _) => {
                // What is escaped may be a quote itself.
                self.take(2);
                self.take_through("'");
            }
            (Some(sign), Some('\'')) => _ = self.take(sign.len_utf8() + 1),
            _ => _ = self.take_word(),
        }
    }
}

/// The number of `#` of the raw string that begins here.
fn raw_string(text: &str) -> Option<usize> {
    let rest = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let quote = rest.trim_start_matches('#');
    quote.starts_with('"').then(|| rest.len() - quote.len())
}
