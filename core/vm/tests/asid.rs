// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address space identifiers against a model of TLBs that never lose anything by themselves.
#![cfg(not(loom))]

use std::collections::HashMap;

use proptest::prelude::*;
use turnstile_vm::asid::{Flush, Pool, Tag};

const CPUS: usize = 3;
const VCPUS: usize = 9;

/// What a vCPU means by its translations: who it is, and how often it has invalidated them.
type Meaning = (usize, u64);

/// The TLB of a CPU: whose translations are kept under each identifier.
#[derive(Default)]
struct Tlb(HashMap<u32, Vec<Meaning>>);

struct Machine {
    pools: Vec<Pool>,
    tlbs: Vec<Tlb>,
    tags: [Tag; VCPUS],
    meanings: [u64; VCPUS],
    /// Where each vCPU ran last.
    at: [usize; VCPUS],
    flushes: usize,
}

impl Machine {
    fn new(asids: u32, by_asid: bool) -> Self {
        Self {
            pools: (0..CPUS).map(|cpu| Pool::new(cpu as u32, asids, by_asid)).collect(),
            tlbs: (0..CPUS).map(|_| Tlb::default()).collect(),
            tags: [Tag::default(); VCPUS],
            meanings: [0; VCPUS],
            at: [CPUS; VCPUS],
            flushes: 0,
        }
    }

    fn flush(&mut self, cpu: usize, asid: u32, flush: Flush) {
        let tlb = &mut self.tlbs[cpu].0;
        match flush {
            Flush::Nothing => {}
            Flush::Own => drop(tlb.remove(&asid)),
            Flush::Everything => tlb.clear(),
        }
        self.flushes += usize::from(flush != Flush::Nothing);
    }

    /// A vCPU runs on a CPU, and forgets its translations there before, or not.
    fn run(&mut self, cpu: usize, vcpu: usize, forgets: bool) {
        // What it did elsewhere, it did not do here.
        if self.at[vcpu] != cpu || forgets {
            self.meanings[vcpu] += 1;
        }
        self.at[vcpu] = cpu;
        let (pool, tag) = (&mut self.pools[cpu], &mut self.tags[vcpu]);
        let flush = if forgets || !pool.has(tag) { pool.renew(tag) } else { Flush::Nothing };
        let asid = self.tags[vcpu].asid();
        assert_ne!(asid, 0, "the host's");
        self.flush(cpu, asid, flush);
        let meaning = (vcpu, self.meanings[vcpu]);
        let kept = self.tlbs[cpu].0.entry(asid).or_default();
        assert!(kept.iter().all(|other| *other == meaning), "{kept:?} are found by {meaning:?}");
        kept.push(meaning);
    }
}

proptest! {
    #[test]
    fn nobody_finds_translations_that_are_not_its_own(
        asids in 2u32..12,
        by_asid: bool,
        history in prop::collection::vec((0..CPUS, 0..VCPUS, prop::bool::weighted(0.2)), 1..300),
    ) {
        let mut machine = Machine::new(asids, by_asid);
        for (cpu, vcpu, forgets) in history {
            machine.run(cpu, vcpu, forgets);
        }
    }
}

#[test]
fn who_comes_back_finds_its_translations() {
    for by_asid in [false, true] {
        let mut machine = Machine::new(16, by_asid);
        for round in 0..100 {
            for vcpu in 0..VCPUS {
                machine.run(0, vcpu, false);
                assert_eq!(machine.tags[vcpu].asid() as usize, vcpu + 1, "round {round}");
            }
        }
        assert_eq!(machine.flushes, 0);
    }
}

#[test]
fn flushes_are_as_rare_as_the_identifiers_allow() {
    // Of 15 identifiers one is taken for each of 1500 invalidations.
    let mut machine = Machine::new(16, false);
    (0..1500).for_each(|_| machine.run(0, 0, true));
    assert_eq!(machine.flushes, 99);
    // Where one can be flushed alone, the other vCPU keeps its own.
    let mut machine = Machine::new(16, true);
    machine.run(0, 1, false);
    let asid = machine.tags[1].asid();
    for _ in 0..1500 {
        machine.run(0, 0, true);
        machine.run(0, 1, false);
        assert_eq!(machine.tags[1].asid(), asid);
    }
}

#[test]
fn a_cpu_with_one_identifier_flushes_at_each_change() {
    let mut machine = Machine::new(2, false);
    for _ in 0..10 {
        machine.run(0, 0, false);
        machine.run(0, 1, false);
    }
    assert_eq!(machine.flushes, 19);
}
