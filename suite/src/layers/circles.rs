// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Circles among files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use crate::sources::krate::Arrow;

/// Finds circles, a shortest one of each knot of files that use each other: its arrows in order.
pub fn circles(arrows: &BTreeSet<Arrow>) -> Vec<Vec<&Arrow>> {
    let mut from: BTreeMap<&Path, Vec<&Arrow>> = BTreeMap::new();
    for arrow in arrows {
        from.entry(&arrow.from).or_default().push(arrow);
    }
    let mut found: Vec<Vec<&Arrow>> = from.keys().filter_map(|file| back_to(&from, file)).collect();
    found.sort_by_key(Vec::len);
    let mut knotted: BTreeSet<&Path> = BTreeSet::new();
    found.retain(|circle| {
        let is_new = circle.iter().all(|arrow| !knotted.contains(arrow.from.as_path()));
        knotted.extend(circle.iter().map(|arrow| arrow.from.as_path()));
        is_new
    });
    found
}

/// The shortest way from a file back to it.
fn back_to<'a>(from: &BTreeMap<&'a Path, Vec<&'a Arrow>>, start: &'a Path) -> Option<Vec<&'a Arrow>> {
    let mut came: BTreeMap<&Path, &Arrow> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(file) = next.pop_front() {
        for arrow in from.get(file).into_iter().flatten() {
            if came.contains_key(arrow.to.as_path()) {
                continue;
            }
            came.insert(&arrow.to, arrow);
            if arrow.to == start {
                return Some(way(&came, start));
            }
            next.push_back(&arrow.to);
        }
    }
    None
}

/// The arrows that lead to `start`, from `start` on.
fn way<'a>(came: &BTreeMap<&Path, &'a Arrow>, start: &Path) -> Vec<&'a Arrow> {
    let mut way = Vec::new();
    let mut at = start;
    while let Some(arrow) = came.get(at) {
        way.push(*arrow);
        at = &arrow.from;
        if at == start {
            break;
        }
    }
    way.reverse();
    way
}
