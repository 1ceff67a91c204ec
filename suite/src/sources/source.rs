// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a Rust source says about modules: which it has, what it calls by which name, and whose names it uses; and how long it is.
//! What is not compiled is left out, tests above all.

use std::collections::{BTreeMap, BTreeSet};

use super::cfg::Compiled;
use super::tokens::{Kind, Token, tokens};

/// The parts of a path, such as `crate`, `irq`, `Gic`; the last one of a glob is `*`.
pub type Path = Vec<String>;

/// A module of a source: the file itself, or one in braces.
#[derive(Debug, Default)]
pub struct Module {
    /// Its names inside the file: none for the file itself.
    pub name: Vec<String>,
    /// Modules in files of their own, with the file that an attribute names.
    pub files: BTreeMap<String, Option<String>>,
    /// What it defines; macros are among it.
    pub items: BTreeSet<String>,
    /// Macros that the whole crate knows by `crate::`.
    pub exported: BTreeSet<String>,
    /// What it calls by another's name.
    pub imports: BTreeMap<String, Path>,
    /// Whatever it has by a `*`.
    pub globs: Vec<Path>,
    /// The paths that it uses, with their lines.
    pub uses: Vec<(Path, usize)>,
}

/// How many lines there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Those that are not blank and no comment.
    pub code: usize,
    /// Those of them that belong to an `unsafe` block.
    pub in_unsafe: usize,
}

/// A source.
#[derive(Debug)]
pub struct Source {
    /// The modules; the file's own is the first one.
    pub modules: Vec<Module>,
    /// How long it is.
    pub lines: Lines,
}

/// Reads what is compiled of a source.
pub fn read(source: &str, compiled: Compiled) -> Source {
    let tokens = tokens(source);
    let mut reader = Reader {
        tokens: &tokens,
        compiled,
        at: 0,
        depth: 0,
        open: vec![(0, 0)],
        modules: vec![Module::default()],
        file: None,
        exported: false,
        kept: vec![true; tokens.len()],
    };
    while reader.at < tokens.len() {
        reader.step();
    }
    Source { lines: reader.lines(), modules: reader.modules }
}

/// Words before an item that say nothing about what it is.
const QUALIFIERS: [&str; 4] = ["unsafe", "async", "extern", "default"];
/// Words that begin an item with a name.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];

struct Reader<'a> {
    tokens: &'a [Token],
    compiled: Compiled,
    at: usize,
    /// How many braces are open.
    depth: usize,
    /// The modules that are open: where in `modules`, and how many braces are open right inside.
    open: Vec<(usize, usize)>,
    modules: Vec<Module>,
    /// What a `#[path]` says about the next module.
    file: Option<String>,
    /// Whether a `#[macro_export]` is about the next macro.
    exported: bool,
    /// Which tokens are compiled.
    kept: Vec<bool>,
}

impl Reader<'_> {
    fn token(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn is_sign(&self, ahead: usize, sign: char) -> bool {
        self.token(ahead).is_some_and(|token| token.is_sign(sign))
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        self.token(ahead).and_then(Token::word)
    }

    fn module(&mut self) -> Option<&mut Module> {
        let (index, _) = self.open.last()?;
        self.modules.get_mut(*index)
    }

    /// Whether what comes is part of the module itself, not of a body.
    fn is_outside(&self) -> bool {
        self.open.last().is_some_and(|(_, depth)| *depth == self.depth)
    }

    fn step(&mut self) {
        let Some(token) = self.token(0) else { return };
        let line = token.line;
        match &token.kind {
            Kind::Sign('#') if self.is_sign(1, '[') => self.attribute(1),
            // An attribute of all that is around it.
            Kind::Sign('#') if self.is_sign(1, '!') && self.is_sign(2, '[') => self.attribute(2),
            Kind::Sign('{') => {
                self.depth += 1;
                self.at += 1;
            }
            Kind::Sign('}') => {
                if self.open.len() > 1 && self.is_outside() {
                    self.open.pop();
                }
                self.depth = self.depth.saturating_sub(1);
                self.at += 1;
            }
            Kind::Word(word) if word == "mod" && self.is_outside() && self.word(1).is_some() => {
                self.begin_module();
            }
            Kind::Word(word) if word == "use" && !self.is_sign(1, '<') => self.import(line),
            Kind::Word(word) if word == "macro_rules" && self.is_sign(1, '!') => self.begin_macro(),
            Kind::Word(word) if ITEMS.contains(&word.as_str()) && self.is_outside() => self.begin_item(),
            Kind::Word(_) => self.path(line),
            _ => self.at += 1,
        }
    }

    /// Takes an attribute whose bracket is so far ahead. What it leaves out is skipped with it.
    fn attribute(&mut self, bracket: usize) {
        let (begin, inner) = (self.at, bracket == 2);
        let start = self.at + bracket;
        let end = self.closing(start);
        let words = self.tokens.get(start + 1..end).unwrap_or_default();
        let is_out = self.compiled.leaves_out(words);
        if words.first().is_some_and(|word| word.is_word("path"))
            && let Some(Kind::Text(file)) = words.get(2).map(|token| &token.kind)
        {
            self.file = Some(file.clone());
        }
        self.exported |= words.first().is_some_and(|word| word.is_word("macro_export"));
        self.at = end + 1;
        match (is_out, inner) {
            (true, true) => self.at = self.tokens.len(),
            (true, false) => self.skip_item(),
            _ => {}
        }
        if is_out {
            let begin = if inner { 0 } else { begin };
            let end = self.at.min(self.kept.len());
            self.kept.iter_mut().take(end).skip(begin).for_each(|kept| *kept = false);
        }
    }

    /// Counts the lines of what is compiled.
    fn lines(&self) -> Lines {
        let kept = |range: std::ops::Range<usize>| {
            let tokens = self.tokens.iter().zip(&self.kept).take(range.end).skip(range.start);
            tokens.filter(|(_, kept)| **kept).map(|(token, _)| token.line)
        };
        let code: BTreeSet<usize> = kept(0..self.tokens.len()).collect();
        let opens = |at: &usize| {
            let next = self.tokens.get(at + 1);
            self.tokens.get(*at).is_some_and(|token| token.is_word("unsafe"))
                && next.is_some_and(|next| next.is_sign('{'))
        };
        let blocks = (0..self.tokens.len()).filter(opens);
        let in_unsafe: BTreeSet<usize> = blocks.flat_map(|at| kept(at..self.closing(at + 1) + 1)).collect();
        Lines { code: code.len(), in_unsafe: in_unsafe.len() }
    }

    /// Where the bracket that opens at `open` is closed.
    fn closing(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (at, token) in self.tokens.iter().enumerate().skip(open) {
            match token.kind {
                Kind::Sign('(' | '[' | '{') => depth += 1,
                Kind::Sign(')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return at;
            }
        }
        self.tokens.len()
    }

    /// Goes behind the item, field or statement that comes, with its other attributes.
    fn skip_item(&mut self) {
        self.file = None;
        self.exported = false;
        while self.is_sign(0, '#') && self.is_sign(1, '[') {
            self.at = self.closing(self.at + 1) + 1;
        }
        let is_item = self.is_item();
        while let Some(token) = self.token(0) {
            match token.kind {
                Kind::Sign('{') => {
                    self.at = self.closing(self.at) + 1;
                    return;
                }
                Kind::Sign('(' | '[') => self.at = self.closing(self.at) + 1,
                Kind::Sign(';') => {
                    self.at += 1;
                    return;
                }
                Kind::Sign(',') if !is_item => {
                    self.at += 1;
                    return;
                }
                Kind::Sign('}') => return,
                Kind::Word(ref word) if word == "use" => {
                    // Its braces are no body.
                    while self.token(0).is_some_and(|token| !token.is_sign(';')) {
                        self.at += 1;
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// Whether an item comes, and no field or variant.
    fn is_item(&self) -> bool {
        let mut ahead = 0;
        if self.word(0) == Some("pub") {
            ahead = match self.is_sign(1, '(') {
                true => self.closing(self.at + 1) + 1 - self.at,
                false => 1,
            };
        }
        self.word(ahead).is_some_and(|word| {
            ITEMS.contains(&word)
                || QUALIFIERS.contains(&word)
                || ["impl", "mod", "use", "macro_rules"].contains(&word)
        })
    }

    fn begin_module(&mut self) {
        let Some(name) = self.word(1).map(str::to_owned) else { return };
        let file = self.file.take();
        if self.is_sign(2, '{') {
            let mut path = self.module().map(|module| module.name.clone()).unwrap_or_default();
            path.push(name);
            self.depth += 1;
            self.open.push((self.modules.len(), self.depth));
            self.modules.push(Module { name: path, ..Module::default() });
        } else if let Some(module) = self.module() {
            module.files.insert(name, file);
        }
        self.at += 3;
    }

    fn begin_macro(&mut self) {
        let name = self.word(2).map(str::to_owned);
        let exported = std::mem::take(&mut self.exported);
        if let (Some(name), Some(module)) = (name, self.module()) {
            if exported {
                module.exported.insert(name.clone());
            }
            module.items.insert(name);
        }
        self.at += 3;
    }

    fn begin_item(&mut self) {
        let name = match self.word(1) {
            Some("mut" | "fn" | "unsafe" | "async" | "extern") | None => None,
            Some(name) => Some(name.to_owned()),
        };
        let Some(name) = name else {
            self.at += 1;
            return;
        };
        self.at += 2;
        if let Some(module) = self.module() {
            module.items.insert(name);
        }
    }

    /// Takes a `use`, whose names are the module's if it stands outside of bodies.
    fn import(&mut self, line: usize) {
        self.at += 1;
        let is_outside = self.is_outside();
        let mut found = Vec::new();
        self.tree(&Vec::new(), line, &mut found);
        let Some(module) = self.module() else { return };
        for (path, name, line) in found {
            match (path.last().is_some_and(|last| last == "*"), name) {
                (true, _) if is_outside => module.globs.push(path.clone()),
                (false, Some(name)) if is_outside => _ = module.imports.insert(name, path.clone()),
                _ => {}
            }
            module.uses.push((path, line));
        }
    }

    /// Takes a tree of a `use` behind a prefix.
    fn tree(&mut self, prefix: &Path, line: usize, found: &mut Vec<(Path, Option<String>, usize)>) {
        let mut path = prefix.clone();
        let mut line = line;
        if self.token(0).is_some_and(|token| token.kind == Kind::Colons) {
            // Another crate's, for sure.
            path.push("::".to_owned());
            self.at += 1;
        }
        while let Some(token) = self.token(0) {
            line = token.line;
            match &token.kind {
                Kind::Word(word) if word == "as" => {
                    let name = self.word(1).map(str::to_owned);
                    self.at += 2;
                    found.push((path, name, line));
                    return;
                }
                Kind::Word(word) => {
                    if word != "self" || path.is_empty() {
                        path.push(word.clone());
                    }
                    self.at += 1;
                }
                Kind::Sign('*') => {
                    path.push("*".to_owned());
                    self.at += 1;
                }
                Kind::Colons => self.at += 1,
                Kind::Sign('{') => {
                    self.at += 1;
                    while self.token(0).is_some_and(|token| !token.is_sign('}') && !token.is_sign(';')) {
                        let line = self.token(0).map_or(line, |token| token.line);
                        self.tree(&path, line, found);
                        if self.is_sign(0, ',') {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                // Inside a macro's pattern a `use` may be any tokens.
                Kind::Sign('$') => self.at += 1,
                _ => break,
            }
        }
        let name = path.last().cloned();
        found.push((path, name, line));
    }

    /// Takes a path in code; whose it is depends on its first word.
    fn path(&mut self, line: usize) {
        let mut path = Vec::new();
        while let Some(word) = self.word(0).map(str::to_owned) {
            path.push(word);
            self.at += 1;
            let goes_on = self.token(0).is_some_and(|token| token.kind == Kind::Colons);
            if !goes_on || self.word(1).is_none() {
                break;
            }
            self.at += 1;
        }
        if path.len() > 1
            && let Some(module) = self.module()
        {
            module.uses.push((path, line));
        }
    }
}
