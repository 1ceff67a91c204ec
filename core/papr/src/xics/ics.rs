// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sources of a VM.

use alloc::vec::Vec;

use super::{Change, NEVER, Servers};
use crate::sync::{AtomicU64, Ordering, fence};

/// How often a source that meets changes of the presentation controller all the time is offered again at once.
const ATTEMPTS: usize = 64;

/// What a source is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    /// The vCPU it goes to.
    server: u32,
    /// Its priority; [`NEVER`] while it is masked.
    priority: u8,
    /// The priority it has when it is not masked.
    saved: u8,
    /// It came and was not presented.
    pending: bool,
}

const PENDING: u64 = 1 << 63;

impl Source {
    /// Masked, for the first vCPU.
    const RESET: Source = Source { server: 0, priority: NEVER, saved: NEVER, pending: false };

    const fn pack(self) -> u64 {
        self.server as u64
            | (self.priority as u64) << 32
            | (self.saved as u64) << 40
            | if self.pending { PENDING } else { 0 }
    }

    const fn unpack(word: u64) -> Source {
        Source {
            server: word as u32,
            priority: (word >> 32) as u8,
            saved: (word >> 40) as u8,
            pending: word & PENDING != 0,
        }
    }
}

/// The interrupt sources of a VM, with consecutive numbers.
#[derive(Debug)]
pub struct Ics {
    first: u32,
    sources: Vec<AtomicU64>,
}

impl Ics {
    /// Makes `count` sources with numbers from `first` on, all masked.
    pub fn new(first: u32, count: usize) -> Self {
        Self { first, sources: (0..count).map(|_| AtomicU64::new(Source::RESET.pack())).collect() }
    }

    /// Masks and forgets all: for a VM that starts, when nobody delivers.
    pub fn reset(&self) {
        self.sources.iter().for_each(|source| source.store(Source::RESET.pack(), Ordering::Relaxed));
    }

    /// Returns the vCPU that a source goes to, and its priority; `None` if there is no such source.
    pub fn route(&self, source: u32) -> Option<(u32, u8)> {
        let source = Source::unpack(self.find(source)?.load(Ordering::Relaxed));
        Some((source.server, source.priority))
    }

    /// Routes a source; false if there is none, or no such vCPU.
    pub fn set_route(&self, source: u32, server: u32, priority: u8, servers: &impl Servers) -> bool {
        servers.icp(server).is_some()
            && self.change(source, servers, |source| {
                *source = Source { server, priority, saved: priority, ..*source };
            })
    }

    /// Masks a source, or unmasks it; false if there is none.
    pub fn set_masked(&self, source: u32, masked: bool, servers: &impl Servers) -> bool {
        self.change(source, servers, |source| {
            source.priority = if masked { NEVER } else { source.saved };
        })
    }

    /// A source's interrupt comes.
    #[inline(never)] // The registers that it needs are not saved for sources of XIVE.
    pub fn trigger(&self, source: u32, servers: &impl Servers) {
        self.change(source, servers, |source| source.pending = true);
    }

    /// Does what a change of the presentation controller of vCPU `server` demands.
    #[inline] // Mostly two comparisons.
    pub fn settle(&self, server: u32, change: Change, servers: &impl Servers) {
        if change.presented {
            servers.notify(server);
        }
        if change.concerns_sources() {
            self.offer_again(server, change, servers);
        }
    }

    #[cold]
    fn offer_again(&self, server: u32, change: Change, servers: &impl Servers) {
        if let Some(rejected) = change.rejected {
            self.trigger(rejected, servers);
        }
        if !change.resend {
            return;
        }
        // Pairs with the fence in `offer`: the source that was refused is seen to be pending here, or its deliverer sees
        // that nothing is remembered any more.
        fence(Ordering::SeqCst);
        for (number, source) in (self.first..).zip(&self.sources) {
            let source = Source::unpack(source.load(Ordering::Relaxed));
            if source.pending && source.server == server {
                self.offer(number, servers);
            }
        }
    }

    fn find(&self, source: u32) -> Option<&AtomicU64> {
        self.sources.get(source.checked_sub(self.first)? as usize)
    }

    /// Changes a source and offers it; false if there is none.
    fn change(&self, source: u32, servers: &impl Servers, f: impl Fn(&mut Source)) -> bool {
        let Some(word) = self.find(source) else { return false };
        update(word, |source| {
            f(source);
            true
        });
        self.offer(source, servers);
        true
    }

    /// Presents a source if it is pending and not masked, and then what it has displaced.
    fn offer(&self, mut number: u32, servers: &impl Servers) {
        for _ in 0..ATTEMPTS {
            let Some(word) = self.find(number) else { return };
            // Whoever takes the mark delivers it.
            let taken = update(word, |source| {
                let takes = source.pending && source.priority != NEVER;
                source.pending &= !takes;
                takes
            });
            let Some(source) = taken else { return };
            let Some(icp) = servers.icp(source.server) else { return };
            if let Some(change) = icp.deliver(number, source.priority) {
                servers.notify(source.server);
                let Some(rejected) = change.rejected else { return };
                number = rejected;
            }
            // Refused, or displaced: it is pending again.
            let Some(word) = self.find(number) else { return };
            // Relaxed: what a device did comes with the exchange that took the mark, whose release sequence goes on.
            word.fetch_or(PENDING, Ordering::Relaxed);
            // Pairs with the fence in `offer_again`.
            fence(Ordering::SeqCst);
            if icp.has_refused() {
                // Offered again when the vCPU next sets its priority.
                return;
            }
        }
    }
}

/// Changes a source if `f` says so; returns what it was then.
fn update(word: &AtomicU64, f: impl Fn(&mut Source) -> bool) -> Option<Source> {
    let mut found = word.load(Ordering::Relaxed);
    loop {
        let mut source = Source::unpack(found);
        if !f(&mut source) {
            return None;
        }
        // Acquire and release: who delivers a source has seen what its device did before.
        match word.compare_exchange_weak(found, source.pack(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Some(Source::unpack(found)),
            Err(other) => found = other,
        }
    }
}
