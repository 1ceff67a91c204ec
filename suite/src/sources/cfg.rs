// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `cfg` attributes leave in.

use super::tokens::{Kind, Token};

/// For what is compiled: never for tests.
#[derive(Clone, Copy, Debug)]
pub enum Compiled {
    /// For the host or a machine, with any features.
    Anyhow,
    /// For the bare machine of this architecture, as `target_arch` names it, without any feature.
    Bare(&'static str),
}

impl Compiled {
    /// Whether an attribute with these tokens leaves out what it is about.
    pub fn leaves_out(self, attribute: &[Token]) -> bool {
        match attribute {
            [cfg, _, predicate @ .., _] if cfg.is_word("cfg") => self.holds(predicate) == Some(false),
            _ => false,
        }
    }

    /// Whether a predicate holds, as far as that is known.
    fn holds(self, predicate: &[Token]) -> Option<bool> {
        let name = predicate.first()?.word()?;
        match predicate.get(1..)? {
            [] => self.is_set(name),
            [is, Token { kind: Kind::Text(value), .. }] if is.is_sign('=') => self.is(name, value),
            [_, inner @ .., _] => {
                let mut parts = arguments(inner).map(|part| self.holds(part));
                match name {
                    "not" => parts.next()?.map(|holds| !holds),
                    "all" => decide(parts, false),
                    _ => decide(parts, true),
                }
            }
            _ => None,
        }
    }

    fn is_set(self, name: &str) -> Option<bool> {
        match (name, self) {
            ("test", _) | ("loom", Compiled::Bare(_)) => Some(false),
            _ => None,
        }
    }

    fn is(self, name: &str, value: &str) -> Option<bool> {
        match (name, self) {
            ("target_os", Compiled::Bare(_)) => Some(value == "none"),
            ("target_arch", Compiled::Bare(arch)) => Some(value == arch),
            ("feature", Compiled::Bare(_)) => Some(false),
            _ => None,
        }
    }
}

/// What `any` and `all` say: one part that is `decisive` decides.
fn decide(parts: impl Iterator<Item = Option<bool>>, decisive: bool) -> Option<bool> {
    let parts: Vec<Option<bool>> = parts.collect();
    if parts.contains(&Some(decisive)) {
        return Some(decisive);
    }
    (!parts.contains(&None)).then_some(!decisive)
}

/// Splits at the commas that are in no bracket.
fn arguments(tokens: &[Token]) -> impl Iterator<Item = &[Token]> {
    let mut depth = 0_i32;
    tokens.split(move |token| {
        match token.kind {
            Kind::Sign('(') => depth += 1,
            Kind::Sign(')') => depth -= 1,
            _ => {}
        }
        depth == 0 && token.is_sign(',')
    })
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::Compiled::{Anyhow, Bare};

    #[test]
    fn what_is_surely_not_compiled_is_left_out() {
        for (attribute, anyhow, arm64, pc) in [
            ("cfg(test)", true, true, true),
            ("cfg(not(test))", false, false, false),
            ("cfg(all(test, target_os = \"linux\"))", true, true, true),
            ("cfg(any(target_os = \"none\", test))", false, false, false),
            ("cfg(not(target_os = \"none\"))", false, true, true),
            ("cfg(target_arch = \"aarch64\")", false, false, true),
            ("cfg(not(any(target_arch = \"aarch64\", target_arch = \"powerpc64\")))", false, true, false),
            ("cfg(not(loom))", false, false, false),
            ("cfg(feature = \"ablation\")", false, true, true),
            ("cfg(debug_assertions)", false, false, false),
            ("derive(test)", false, false, false),
        ] {
            let tokens = tokens(attribute);
            let left_out = [Anyhow, Bare("aarch64"), Bare("x86_64")].map(|what| what.leaves_out(&tokens));
            assert_eq!(left_out, [anyhow, arm64, pc], "{attribute}");
        }
    }
}
