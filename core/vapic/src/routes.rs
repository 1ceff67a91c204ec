// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is meant by a destination (APM vol. 2, 16.6.1 and 16.10; SDM vol. 3A, "Determining IPI Destination").
//!
//! Finding the targets of a message costs as much as there are targets, plus a few words of bits. A physical destination is
//! a vCPU's number; an x2APIC's logical one names 16 vCPUs in a row. For the logical destinations that xAPICs give
//! themselves there are bit sets by the bits of the destination. Each vCPU's owner enters and removes only its own bits,
//! and lookups take no lock: one that meets a change finds the vCPU where it was, where it will be, or nowhere, as on a
//! bus where the message and the change meet. Many vCPUs may give themselves the same logical destination; a
//! message to it is a broadcast then, and costs one.

use alloc::boxed::Box;
use core::array;

use crate::MAX_VCPUS;
use crate::message::{BROADCAST, Message};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How a vCPU is found by logical destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logical {
    /// It is not.
    Nowhere,
    /// By its ID.
    X2Apic,
    /// Flat model: a bit each.
    Flat(u8),
    /// Cluster model: cluster and bits.
    Cluster(u8, u8),
}

impl Logical {
    /// Decodes the logical destination and destination format registers of an xAPIC.
    pub(crate) fn of_xapic(logical: u32, format: u32) -> Self {
        let id = (logical >> 24) as u8;
        if format >> 28 == 0xf { Self::Flat(id) } else { Self::Cluster(id >> 4, id & 0xf) }
    }
}

/// A set of vCPUs.
struct Set([AtomicU64; MAX_VCPUS / 64]);

impl Set {
    fn new() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }

    fn put(&self, index: usize, is_in: bool) {
        let (word, bit) = (&self.0[index / 64 % self.0.len()], 1 << (index % 64));
        // Relaxed, here and where sets are read: they hold nothing but themselves.
        if is_in {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn word(&self, n: usize) -> u64 {
        self.0[n % self.0.len()].load(Ordering::Relaxed)
    }
}

/// The destinations of a VM.
pub struct Routes {
    vcpus: usize,
    /// Of each x2APIC cluster, the vCPUs that are x2APICs.
    x2apic: Box<[AtomicU32; MAX_VCPUS / 16]>,
    /// How many vCPUs the sets below hold.
    in_sets: AtomicU32,
    flat: Box<[Set; 8]>,
    clusters: Box<[[Set; 4]; 16]>,
    /// Those that accept interrupts: what arbitration is among.
    accepting: Box<Set>,
}

impl Routes {
    /// Makes the table for a VM with `vcpus` (at most [`MAX_VCPUS`]), whose APIC IDs are their numbers.
    pub fn new(vcpus: usize) -> Self {
        Self {
            vcpus: vcpus.min(MAX_VCPUS),
            x2apic: Box::new(array::from_fn(|_| AtomicU32::new(0))),
            in_sets: AtomicU32::new(0),
            flat: Box::new(array::from_fn(|_| Set::new())),
            clusters: Box::new(array::from_fn(|_| array::from_fn(|_| Set::new()))),
            accepting: Box::new(Set::new()),
        }
    }

    /// Returns how many vCPUs there are.
    pub fn vcpus(&self) -> usize {
        self.vcpus
    }

    /// Moves a vCPU from one entry to another. For its owner.
    pub(crate) fn enroll(&self, index: usize, from: Logical, to: Logical, accepting: bool) {
        self.accepting.put(index, accepting);
        if from != to {
            self.enter(index, from, false);
            self.enter(index, to, true);
        }
    }

    fn enter(&self, index: usize, entry: Logical, is_in: bool) {
        match entry {
            Logical::Nowhere => return,
            Logical::X2Apic => {
                let (cluster, bit) = (&self.x2apic[index / 16 % self.x2apic.len()], 1 << (index % 16));
                match is_in {
                    true => cluster.fetch_or(bit, Ordering::Relaxed),
                    false => cluster.fetch_and(!bit, Ordering::Relaxed),
                };
                return;
            }
            Logical::Flat(bits) => bits_of(bits.into()).for_each(|bit| self.flat[bit & 7].put(index, is_in)),
            Logical::Cluster(cluster, bits) => {
                let cluster = &self.clusters[usize::from(cluster & 15)];
                bits_of(bits.into()).for_each(|bit| cluster[bit & 3].put(index, is_in));
            }
        }
        match is_in {
            true => self.in_sets.fetch_add(1, Ordering::Relaxed),
            false => self.in_sets.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Hands each vCPU that is meant to `f`, once.
    #[inline] // On the path of every interprocessor interrupt.
    pub fn each(&self, logical: bool, destination: u32, mut f: impl FnMut(usize)) {
        if destination == BROADCAST {
            (0..self.vcpus).for_each(f);
        } else if !logical {
            if (destination as usize) < self.vcpus {
                f(destination as usize);
            }
        } else {
            let cluster = (destination >> 16) as usize;
            if let Some(x2apics) = self.x2apic.get(cluster) {
                let meant = u64::from(destination & 0xffff & x2apics.load(Ordering::Relaxed));
                bits_of(meant).for_each(|bit| f(cluster * 16 + bit));
            }
            if destination <= 0xff && self.in_sets.load(Ordering::Relaxed) != 0 {
                self.each_xapic(destination as u8, f);
            }
        }
    }

    /// Hands each xAPIC that is meant by a logical destination to `f`, once.
    fn each_xapic(&self, destination: u8, mut f: impl FnMut(usize)) {
        let cluster = &self.clusters[usize::from(destination >> 4)];
        for n in 0..self.vcpus.div_ceil(64) {
            let flat = bits_of(destination.into()).map(|bit| self.flat[bit & 7].word(n));
            let clustered = bits_of((destination & 0xf).into()).map(|bit| cluster[bit & 3].word(n));
            bits_of(flat.chain(clustered).fold(0, |all, word| all | word)).for_each(|bit| f(n * 64 + bit));
        }
    }

    /// Returns the vCPU that a lowest-priority message goes to (APM vol. 2, 16.6.2). Priorities are not compared: which of
    /// those that accept interrupts it is depends on the vector, so a device's interrupts stay where they are.
    pub(crate) fn arbitrate(&self, message: &Message) -> Option<usize> {
        let accepts = |vcpu: usize| self.accepting.word(vcpu / 64) >> (vcpu % 64) & 1 != 0;
        let mut count = 0;
        self.each(message.logical, message.destination, |vcpu| count += usize::from(accepts(vcpu)));
        let mut skip = usize::from(message.vector).checked_rem(count)?;
        let mut winner = None;
        self.each(message.logical, message.destination, |vcpu| {
            if accepts(vcpu) && winner.is_none() {
                if skip == 0 {
                    winner = Some(vcpu);
                }
                skip = skip.wrapping_sub(1);
            }
        });
        winner
    }
}

/// Returns the numbers of the bits that are set.
#[inline]
fn bits_of(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        bit
    })
}
