// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pausing a VM that runs, and letting it go on.
//!
//! ```text
//! Runs ── begin ──► Leaving ── the last vCPU is out: close ──► Stands
//!   ▲                  │                                         │
//!   └────── end ───────┴──────────────── end ────────────────────┘
//! ```
//! Whoever wants a VM to pause calls [`Pause::begin`] and raises the attention of all vCPUs. Each vCPU leaves its guest,
//! silences its timers, acknowledges, and waits as long as [`Pause::holds`]. Once the last one is out, no vCPU sees the
//! VM's clock: from [`Pause::close`] on it stands still, until [`Pause::end`], which says for how long it did.
//! A pause that ends before all vCPUs were out has not stopped the clock: some have waited, as for any other reason.
//!
//! **A short pause** ([`Pause::begin_short`]) is for the hypervisor itself, which does something while no vCPU is in its guest: the last
//! one that is out does it ([`Pause::is_short`]), and ends the short pause. The clock goes on, and nobody is told. A user's pause may begin
//! and end meanwhile: whoever is held by both goes on when both have ended, and the clock stops when the short one has.
//!
//! A pause is a part of a running VM's life: a VM that stops takes no notice of it, and the next life begins without
//! ([`Pause::reset`]).

use alloc::boxed::Box;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The vCPUs run, if none of the bits of [`STATE`] is set.
const RUNS: u64 = 0;
/// They leave their guests, or have left, for a user.
const LEAVING: u64 = 1;
/// All have left, and the clock stands. In the place of [`LEAVING`], and never with [`SHORT`].
const STANDS: u64 = 2;
/// They leave their guests, or have left, for the hypervisor itself.
const SHORT: u64 = 4;
const STATE: u64 = 7;
/// The number of the pause, in bits [31:3], so that no vCPU takes one for another. A pause that begins during another one has its number.
const NUMBER_SHIFT: u32 = 3;
const NUMBER: u64 = 0xffff_fff8;
/// One vCPU that has not acknowledged yet, in the bits above.
const VCPU: u64 = 1 << 32;

const fn number(word: u64) -> u32 {
    ((word & NUMBER) >> NUMBER_SHIFT) as u32
}

/// The pauses of one VM.
#[derive(Debug)]
pub struct Pause {
    /// The state, the number of the pause, and how many vCPUs are still to acknowledge it.
    word: AtomicU64,
    /// The pause that each vCPU has acknowledged last: only its own CPU gets here.
    acknowledged: Box<[AtomicU32]>,
    /// When the clock was stopped.
    since: AtomicU64,
    /// The ticks for which it has stood still in this life, before that.
    still: AtomicU64,
}

impl Pause {
    /// Makes that of a VM of `vcpus` vCPUs, which is not paused.
    pub fn new(vcpus: u32) -> Self {
        Self {
            word: AtomicU64::new(RUNS),
            acknowledged: (0..vcpus.max(1)).map(|_| AtomicU32::new(0)).collect(),
            since: AtomicU64::new(0),
            still: AtomicU64::new(0),
        }
    }

    /// Begins a pause of a VM that runs. True for the caller who begins it: it must then make all vCPUs look. False if the VM is
    /// paused already.
    pub fn begin(&self) -> bool {
        self.begin_with(LEAVING, |word| (word & STATE == SHORT).then_some(word | LEAVING))
    }

    /// Begins a short pause, as [`Pause::begin`] a user's. False if there is one already, or if all vCPUs have left for a user's: whoever
    /// wants it asks again.
    pub fn begin_short(&self) -> bool {
        self.begin_with(SHORT, |word| (word & STATE == LEAVING && word / VCPU != 0).then_some(word | SHORT))
    }

    /// Begins a pause for a reason. `joined` says what the word is then if there is another pause, which it joins.
    fn begin_with(&self, reason: u64, joined: impl Fn(u64) -> Option<u64>) -> bool {
        let vcpus = self.acknowledged.len() as u64;
        // Relaxed: what makes a vCPU look is posted behind this, which releases it.
        let begun = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            // The number is never zero, which is what vCPUs begin with.
            let next = word.wrapping_add(1 << NUMBER_SHIFT) & NUMBER;
            let next = if next == 0 { 1 << NUMBER_SHIFT } else { next };
            if word & STATE == RUNS { Some(reason | next | (vcpus * VCPU)) } else { joined(word) }
        });
        begun.is_ok()
    }

    /// Says whether vCPUs are to stay out of their guests. A vCPU reads it after it has taken what made it look, so that it does
    /// not miss the end.
    #[inline] // One load, of the waiting room and of waits in a pause.
    pub fn holds(&self) -> bool {
        // Acquire: pairs with `end`; who goes on sees the clock put right.
        self.word.load(Ordering::Acquire) & STATE != RUNS
    }

    /// Says whether a user's pause holds the VM.
    pub fn is_paused(&self) -> bool {
        self.word.load(Ordering::Acquire) & (LEAVING | STANDS) != 0
    }

    /// Acknowledges for one vCPU that it is out of its guest, and that none of its timers rings. True for exactly one caller in each
    /// pause: the last one, who does what a [short pause](Pause::is_short) is for, ends that, and goes on to [`Pause::close`]. Nothing happens if the VM is not paused, or if the vCPU has
    /// acknowledged this pause already.
    pub fn acknowledge(&self, vcpu: usize) -> bool {
        let Some(acknowledged) = self.acknowledged.get(vcpu) else { return false };
        let pause = self.word.load(Ordering::Acquire);
        // Relaxed: it is this vCPU's alone.
        if pause & (LEAVING | SHORT) == 0 || acknowledged.load(Ordering::Relaxed) == number(pause) {
            return false;
        }
        acknowledged.store(number(pause), Ordering::Relaxed);
        // AcqRel: release what this vCPU did in its guest; for the last one, acquire what all others did. A pause that has ended
        // meanwhile is not acknowledged.
        let counted = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            (word & (LEAVING | SHORT) != 0 && number(word) == number(pause)).then(|| word - VCPU)
        });
        counted.is_ok_and(|word| word / VCPU == 1)
    }

    /// Says whether there is a short pause that the caller, who has acknowledged last, is to end: none begins behind that, and none ends but by
    /// its hand. So no vCPU is in its guest until [`Pause::end_short`]. If the pause that it has acknowledged has ended meanwhile, there may be
    /// another one, which it has not acknowledged.
    pub fn is_short(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & SHORT != 0 && word / VCPU == 0
    }

    /// Ends a short pause, for the vCPU that has acknowledged last. True if the others are held no longer: the caller must then make all
    /// vCPUs look. Otherwise a user has paused the VM meanwhile.
    pub fn end_short(&self) -> bool {
        // Release: pairs with `holds`; who goes on sees what was done meanwhile.
        self.word.fetch_and(!SHORT, Ordering::AcqRel) & STATE == SHORT
    }

    /// Stops the clock, which shows `now`: for the vCPU that has acknowledged last. False if the pause has ended meanwhile.
    pub fn close(&self, now: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if word & STATE != LEAVING || word / VCPU != 0 {
            return false;
        }
        // Before it can be seen that the clock stands.
        self.since.store(now, Ordering::Relaxed);
        let stands = word & NUMBER | STANDS;
        self.word.compare_exchange(word, stands, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends a user's pause when the clock shows `now`: returns for how many ticks it has stood still, none if the vCPUs were still
    /// leaving; `None` if the VM is not paused. `adjust` gets them while all vCPUs are out, if they are. The caller must then
    /// make all vCPUs look. One at a time.
    pub fn end(&self, now: u64, adjust: impl FnOnce(u64)) -> Option<u64> {
        // Acquire: pairs with `close`; what the vCPUs did in their guests comes before what is done now.
        let left = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            // A short pause goes on, with those that have acknowledged it.
            (word & LEAVING != 0).then_some(if word & SHORT != 0 {
                word & !LEAVING
            } else {
                word & NUMBER | RUNS
            })
        });
        match left {
            Ok(_) => Some(0),
            Err(word) if word & STATE == STANDS => {
                let ticks = now.saturating_sub(self.since.load(Ordering::Relaxed));
                self.still.fetch_add(ticks, Ordering::Relaxed);
                adjust(ticks);
                // Release: pairs with `holds`.
                self.word.store(word & NUMBER | RUNS, Ordering::Release);
                Some(ticks)
            }
            Err(_) => None,
        }
    }

    /// Returns for how many ticks the clock has stood still in a pause that goes on when the machine's shows `now`; `None` while the
    /// vCPUs run, or still leave.
    pub fn stands_for(&self, now: u64) -> Option<u64> {
        // Relaxed: it was stored before it could be seen that the clock stands.
        self.stands().then(|| now.saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    /// Says whether all vCPUs are out.
    pub fn stands(&self) -> bool {
        self.word.load(Ordering::Acquire) & STATE == STANDS
    }

    /// Returns what the VM's clock shows when the machine's shows `now`: without the pauses of this life.
    pub fn clock(&self, now: u64) -> u64 {
        let now = if self.stands() { self.since.load(Ordering::Relaxed) } else { now };
        now.wrapping_sub(self.still())
    }

    /// Returns the ticks for which the clock has stood still in this life, without a pause that goes on.
    #[inline] // One load.
    pub fn still(&self) -> u64 {
        // Relaxed: who was out of its guest meanwhile has synchronized by `holds`.
        self.still.load(Ordering::Relaxed)
    }

    /// Forgets the pauses of a life that is over. Only while no vCPU runs.
    pub fn reset(&self) {
        self.still.store(0, Ordering::Relaxed);
        self.word.fetch_and(NUMBER, Ordering::Release);
    }
}
