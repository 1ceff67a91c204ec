// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a node's registers are: addresses on its bus, translated bus by bus to those of the CPUs (Devicetree
//! Specification 2.3.8, `ranges`).

use arrayvec::ArrayVec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};

use turnstile_firmware::Range;
use turnstile_firmware::tree::ranges;

/// How many buses there are at most between the root and a device that is looked for.
const DEPTH: usize = 4;

/// A node of the device tree with the buses that it is behind.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The node.
    pub node: FdtNode<'a>,
    /// The nodes above it, the root's child first.
    buses: ArrayVec<FdtNode<'a>, DEPTH>,
}

impl<'a> Place<'a> {
    /// Finds the node with this path; names may lack their unit addresses.
    pub fn at(fdt: Fdt<'a>, path: &str) -> Option<Self> {
        let mut place = Place { node: fdt.root(), buses: ArrayVec::new() };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let is_it = |node: &FdtNode<'_>| node.name() == name || node.name_without_address() == name;
            let child = place.node.children().find(is_it)?;
            place = place.descend(child)?;
        }
        Some(place)
    }

    /// Finds the first node that `wanted` accepts.
    pub fn find(fdt: Fdt<'a>, wanted: &dyn Fn(&FdtNode<'a>) -> bool) -> Option<Self> {
        Place { node: fdt.root(), buses: ArrayVec::new() }.search(wanted)
    }

    /// Visits all nodes, in the order of the device tree.
    pub fn visit(fdt: Fdt<'a>, f: &mut dyn FnMut(&Self)) {
        Place { node: fdt.root(), buses: ArrayVec::new() }.visit_below(f);
    }

    fn visit_below(&self, f: &mut dyn FnMut(&Self)) {
        for place in self.node.children().filter_map(|child| self.descend(child)) {
            f(&place);
            place.visit_below(f);
        }
    }

    fn search(&self, wanted: &dyn Fn(&FdtNode<'a>) -> bool) -> Option<Self> {
        self.node
            .children()
            .filter_map(|child| self.descend(child))
            .find_map(|place| if wanted(&place.node) { Some(place) } else { place.search(wanted) })
    }

    /// Goes to a child; `None` when that is too deep. The root is no bus: its addresses are those of the CPUs.
    fn descend(&self, child: FdtNode<'a>) -> Option<Self> {
        let mut buses = self.buses.clone();
        if !self.node.name().is_empty() {
            buses.try_push(self.node).ok()?;
        }
        Some(Place { node: child, buses })
    }

    /// Returns the node's register blocks, as the CPUs see them; without those that no CPU reaches.
    pub fn registers(&self) -> impl Iterator<Item = Range> {
        ranges(self.node).filter_map(|block| self.translate(block))
    }

    /// Translates a block of the bus that the node is on to what the CPUs see; `None` if no CPU reaches it.
    pub fn translate(&self, block: Range) -> Option<Range> {
        self.buses.iter().rev().try_fold(block, translate)
    }

    /// Returns the buses that the node is behind, the root's child first.
    pub fn buses(&self) -> &[FdtNode<'a>] {
        &self.buses
    }
}

/// Translates a block's address from a bus to the bus above it.
fn translate(block: Range, bus: &FdtNode<'_>) -> Option<Range> {
    // Without `ranges` the bus is not reached by loads and stores; an empty one says that nothing changes.
    if bus.property("ranges")?.value().is_empty() {
        return Some(block);
    }
    bus.ranges().ok()??.find_map(|window| {
        let child = Range { base: window.child_bus_address().ok()?, size: window.length().ok()? };
        if !child.contains(block) {
            return None;
        }
        let parent: u64 = window.parent_bus_address().ok()?;
        Some(Range { base: parent.checked_add(block.base - child.base)?, size: block.size })
    })
}
