// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the light tier of an exit can reach in a built image: no panic, and nothing through a pointer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The functions of an image: address, size and name.
#[derive(Debug)]
pub(super) struct Functions(BTreeMap<u64, (u64, String)>);

/// A call whose target is not known.
#[derive(Debug)]
pub(super) struct Pointer;

impl Functions {
    /// Those at these addresses. What is written in assembly has no size: it goes to the next symbol, or to `end`.
    pub(super) fn new(mut functions: BTreeMap<u64, (u64, String)>, end: Option<u64>) -> Self {
        let starts: Vec<u64> = functions.keys().copied().collect();
        for (&start, &next) in starts.iter().zip(starts.iter().skip(1).chain(&end)) {
            if let Some((size @ 0, _)) = functions.get_mut(&start) {
                *size = next - start;
            }
        }
        Functions(functions)
    }

    /// The address and the name of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &str)> {
        self.0.iter().map(|(start, (_, name))| (*start, name.as_str()))
    }

    /// Says whether one begins there.
    pub(super) fn begins(&self, address: u64) -> bool {
        self.0.contains_key(&address)
    }

    /// The one that an address is in.
    pub(super) fn containing(&self, address: u64) -> Option<u64> {
        let (start, (size, _)) = self.0.range(..=address).next_back()?;
        (address - start < *size).then_some(*start)
    }

    /// The name of the one that begins there.
    pub(super) fn name(&self, start: u64) -> &str {
        self.0.get(&start).map_or("", |(_, name)| name)
    }

    /// The size of the one that begins there, in bytes.
    pub(super) fn size(&self, start: u64) -> u64 {
        self.0.get(&start).map_or(0, |(size, _)| *size)
    }

    /// Follows what functions call and jump to, from these on, and fails if that leads to the panic machinery, or through a
    /// pointer. `targets` are those of a function.
    pub(super) fn follow(
        &self,
        handlers: impl IntoIterator<Item = u64>,
        targets: impl Fn(u64) -> Result<Vec<u64>, Pointer>,
    ) -> Result<(), String> {
        let mut todo: Vec<u64> = handlers.into_iter().collect();
        let mut from: BTreeMap<u64, u64> = todo.iter().map(|&handler| (handler, handler)).collect();
        while let Some(start) = todo.pop() {
            if self.name(start).contains("panic") {
                return Err(format!("the light tier can reach {}", self.way(&from, start)));
            }
            let targets = targets(start).map_err(|Pointer| {
                format!("the light tier calls through a pointer: {}", self.way(&from, start))
            })?;
            for called in targets.into_iter().filter_map(|target| self.containing(target)) {
                if let Entry::Vacant(entry) = from.entry(called) {
                    entry.insert(start);
                    todo.push(called);
                }
            }
        }
        Ok(())
    }

    /// How a function is reached, for people.
    fn way(&self, from: &BTreeMap<u64, u64>, mut function: u64) -> String {
        let mut names = vec![self.name(function)];
        while let Some(&caller) = from.get(&function).filter(|caller| **caller != function) {
            names.push(self.name(caller));
            function = caller;
        }
        names.reverse();
        let names = names.iter().map(|name| format!("{:#}", rustc_demangle::demangle(name)));
        names.collect::<Vec<_>>().join(" -> ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `handler` at 0 calls `helper` at 16, which calls what is at 32 and has no size.
    fn functions(last: &str) -> Functions {
        let named = [(0, (16, "handler")), (16, (8, "helper")), (32, (0, last))];
        let named = named.map(|(start, (size, name))| (start, (size, name.to_owned())));
        Functions::new(named.into(), Some(48))
    }

    fn targets(start: u64) -> Result<Vec<u64>, Pointer> {
        match start {
            0 => Ok(vec![16]),
            16 => Ok(vec![0, 30, 40]),
            _ => Ok(Vec::new()),
        }
    }

    #[test]
    fn panics_are_found_with_their_way() {
        assert_eq!(functions("good").follow([0], targets), Ok(()), "30 is in no function");
        let found = functions("panic_fmt").follow([0], targets).unwrap_err();
        assert!(found.ends_with("can reach handler -> helper -> panic_fmt"), "{found}");
    }

    #[test]
    fn pointers_are_found() {
        let steered = |start| if start == 16 { Err(Pointer) } else { targets(start) };
        let found = functions("good").follow([0], steered).unwrap_err();
        assert!(found.ends_with("through a pointer: handler -> helper"), "{found}");
    }
}
