// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The attention word: "look before you re-enter".
//!
//! # Protocol
//! - A **poster** first makes visible what the owner shall find (an inbox bit, a request), then sets a reason in
//!   the word ([`Attention::post`]). If the word was zero before, it kicks the physical CPU it is told;
//!   otherwise it does not: whoever made the word non-zero has kicked, or does so now.
//! - The **owner** masks interrupts while it is out of the guest. Before each entry it reads the word
//!   ([`Attention::is_pending`], one load and one branch). If it is not zero, the owner swaps it for zero
//!   ([`Attention::take`]), *then* looks at what the reasons point to, and reads the word again.
//!
//! Neither an exit nor an entry writes anything here: that a vCPU is in its guest or out of it is recorded
//! nowhere. The price is a kick that finds its target out of the guest already: it costs that vCPU one exit.
//!
//! # Nothing is lost
//! Let P be a post whose reason the owner has not yet taken. The word stays non-zero from P on, until the owner
//! takes it. If the owner's next read before entry comes after P, it sees P. If it came before P, the owner may
//! be entering its guest; then either the word was zero at P, and P kicks; or an earlier post, also after that
//! read, made it non-zero, and that one kicks. A kick is a physical interrupt: it stays pending while the owner
//! masks interrupts and is taken as an exit once the guest runs. So the guest never runs on with a non-zero
//! word. (The kick must be ordered behind the write of the word: on Arm a `DSB ISHST` before `ICC_SGI1R_EL1`.)
//!
//! # What the owner finds
//! `post` releases and `take` acquires. Further posts are read-modify-writes and continue the release sequence,
//! so `take` synchronizes with every post whose reason it returns, not only the last. A source changed after
//! `take` is either found when it is looked at, or by its own reason in the word at the next read; it may be
//! both, so a reason may find nothing to do.

use bitflags::bitflags;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

bitflags! {
    /// Why a vCPU must look before it re-enters its guest.
    ///
    /// The highest eight bits stay zero: an exit handler may return the word itself beside codes of its own, which have
    /// some of them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Reasons: u32 {
        /// SGIs were posted to it: the bit of SGI n is n. An SGI needs no other place to wait in, so sending and
        /// taking one costs one atomic operation each.
        const SGIS = 0xffff;
        /// On a PC, which has no SGIs: an NMI was sent to it.
        const NMI = 1 << 0;
        /// On a PC: an INIT was sent to it ([`crate::startup`]).
        const INIT = 1 << 1;
        /// On a PC: its translations are to be forgotten.
        const FLUSH = 1 << 3;
        /// On a PC: it is to leave HLT (`KVM_HC_KICK_CPU`).
        const UNHALT = 1 << 4;
        /// On x86-64: the 8259s assert something else.
        const EXTERNAL = 1 << 5;
        /// On a PC: interrupts were posted to its mailbox; a bit for each 64 vectors ([`Reasons::mailbox`]).
        const MAILBOX = 0xf << 8;
        /// Interrupts were posted to its inbox.
        const INBOX = 1 << 16;
        /// An operation on its state is asked for.
        const REMOTE = 1 << 17;
        /// A service of its VM has something to handle that came from elsewhere. Beside the two before: one instruction tests for
        /// all three.
        const SERVICE = 1 << 18;
        /// Its VM is being stopped, or paused.
        const STOP = 1 << 19;
        /// Its VM runs again, also after a pause, or its PSCI power state changed.
        const START = 1 << 20;
        /// Its statistics are asked for.
        const STATISTICS = 1 << 21;
        /// A deadline the owner set for itself has passed.
        const DEADLINE = 1 << 22;
        /// Another vCPU shall run here.
        const RESCHEDULE = 1 << 23;
    }
}

impl Reasons {
    /// Returns the reason that an SGI (0 to 15) was posted.
    #[inline(always)] // One shift.
    pub const fn sgi(intid: u32) -> Self {
        Self::from_bits_retain(1 << (intid & 15))
    }

    /// Returns the reason that an interrupt of this vector was posted to the mailbox.
    #[inline(always)] // Two shifts.
    pub const fn mailbox(vector: u8) -> Self {
        Self::from_bits_retain(1 << (8 + (vector >> 6)))
    }

    /// Returns the number of the 64 vectors of which some were posted, if those are the only ones; `None` if there are more, or none.
    #[inline(always)] // A few instructions.
    pub const fn only_mailbox(self) -> Option<usize> {
        let posted = (self.bits() & Self::MAILBOX.bits()) >> 8;
        if posted != 0 && posted & (posted - 1) == 0 { Some(posted.trailing_zeros() as usize) } else { None }
    }

    /// Hands the number of each 64 vectors of which some were posted to `look`, lowest first.
    #[inline(always)] // Called in one place, and `look` is small.
    pub fn each_mailbox(self, mut look: impl FnMut(usize)) {
        let mut posted = (self.bits() & Self::MAILBOX.bits()) >> 8;
        while posted != 0 {
            look(posted.trailing_zeros() as usize);
            posted &= posted - 1;
        }
    }

    /// Hands each SGI posted to `deliver`, lowest INTID first.
    #[inline(always)] // Called in two places, and `deliver` is small.
    pub fn each_sgi(self, mut deliver: impl FnMut(u32)) {
        let mut posted = self.bits() & Self::SGIS.bits();
        while posted != 0 {
            deliver(posted.trailing_zeros());
            posted &= posted - 1;
        }
    }
}

/// What makes a physical CPU look at the attention word of the vCPU that is resident there, for the interrupt
/// controller's driver: the value it writes. Less than the four highest numbers.
pub type KickToken = u64;

/// The residence of a vCPU that is in no CPU and waits for something: the first poster wakes it.
const PARKED: u64 = u64::MAX;
/// The residence of a vCPU that is in no CPU, and in some CPU's run queue or on its way there: whoever loads it reads
/// its word.
const QUEUED: u64 = u64::MAX - 1;
/// As [`PARKED`], while somebody uses its state: who that is reads the word afterwards.
const CLAIMED_PARKED: u64 = u64::MAX - 2;
/// As [`QUEUED`], while somebody uses its state: who loads it waits for that.
const CLAIMED_QUEUED: u64 = u64::MAX - 3;

/// A claim to the state of a vCPU that is in no CPU: what it was.
#[derive(Debug)]
#[must_use = "what is claimed has to be released"]
pub struct Claim(u64);

/// What a poster has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a vCPU that is not kicked or woken does not look"]
pub enum Posted {
    /// Nothing: the owner looks anyway.
    Seen,
    /// Kick the physical CPU where the vCPU is resident.
    Kick(KickToken),
    /// Hand the vCPU to its CPU's run queue: this poster alone has taken it out of where it was parked.
    Wake,
}

/// The attention word of a vCPU, and where the vCPU is resident. The word comes first: assembly loads it.
#[derive(Debug)]
#[repr(C)]
pub struct Attention {
    word: AtomicU32,
    /// What the owner has noted for itself, beside the word: assembly loads both at once.
    note: AtomicU32,
    /// The token of the physical CPU, or [`QUEUED`], [`PARKED`] and so on. Written by load and put; a poster takes it
    /// from [`PARKED`] to [`QUEUED`].
    residence: AtomicU64,
}

impl Default for Attention {
    fn default() -> Self {
        Self::new()
    }
}

impl Attention {
    /// Where the word is, in bytes: for assembly that loads it.
    pub const WORD_OFFSET: usize = core::mem::offset_of!(Self, word);
    /// Where the owner's note is: behind the word, in the same eight bytes.
    pub const NOTE_OFFSET: usize = core::mem::offset_of!(Self, note);

    /// Makes the attention of a vCPU that is not resident, with nothing pending.
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0), note: AtomicU32::new(0), residence: AtomicU64::new(QUEUED) }
    }

    /// Sets reasons, after what they point to was made visible. Returns what the caller must do then. For the owner
    /// itself, [`Attention::raise`] is enough.
    #[inline(always)] // Ten instructions of every cross-CPU interrupt.
    pub fn post(&self, reasons: Reasons) -> Posted {
        self.post_light(reasons).unwrap_or_else(|| self.unpark())
    }

    /// As [`Attention::post`], for a path that calls no function: `None` if the vCPU is in no CPU. Then the caller goes on with
    /// [`Attention::post_absent`] soon; nobody else does meanwhile.
    #[inline(always)] // As above.
    pub fn post_light(&self, reasons: Reasons) -> Option<Posted> {
        // Release: pairs with `take`. Relaxed on the other side: a poster learns nothing from the old reasons.
        if self.word.fetch_or(reasons.bits(), Ordering::Release) != 0 {
            return Some(Posted::Seen);
        }
        // Pairs with the fences in `load` and `put`: either this reads the new residence, or whoever wrote that reads
        // the word just written. Without it each could read what was before the other's write.
        fence(Ordering::SeqCst);
        let residence = self.residence.load(Ordering::Relaxed);
        (residence < CLAIMED_QUEUED).then_some(Posted::Kick(residence))
    }

    /// The rest of a post to a vCPU that was in no CPU.
    pub fn post_absent(&self) -> Posted {
        self.unpark()
    }

    /// Takes the vCPU out of where it is parked, unless somebody else has.
    #[cold]
    fn unpark(&self) -> Posted {
        // Acquire: what its CPU did before it parked the vCPU comes before what the waker does with it.
        match self.residence.compare_exchange(PARKED, QUEUED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Posted::Wake,
            Err(token) if token < CLAIMED_QUEUED => Posted::Kick(token),
            // Who has claimed it, or loads it, reads the word.
            Err(_) => Posted::Seen,
        }
    }

    /// Sets reasons for oneself: only the owner, out of the guest, needs no kick.
    pub fn raise(&self, reasons: Reasons) {
        // Relaxed: the owner synchronizes with nobody but itself; a read-modify-write keeps the release
        // sequences of posters intact.
        self.word.fetch_or(reasons.bits(), Ordering::Relaxed);
    }

    /// Says whether the owner must [`Attention::take`] before it enters the guest. HOT: one load.
    // Inlined: it is one load in the middle of the entry path.
    #[inline(always)]
    pub fn is_pending(&self) -> bool {
        // Relaxed: it only decides whether to call `take`, which acquires.
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Returns the word itself, not zero if the owner must [`Attention::take`]. HOT: one load, no comparison,
    /// for an entry path that branches on the value it is given.
    // Inlined: it is one load in the middle of the entry path.
    #[inline(always)]
    pub fn word(&self) -> u32 {
        // Relaxed, as in `is_pending`.
        self.word.load(Ordering::Relaxed)
    }

    /// Notes something for the owner itself, which nothing here looks at. Only the owner, out of the guest.
    #[inline(always)] // One store.
    pub fn note(&self, note: u32) {
        // Relaxed: nobody else reads it.
        self.note.store(note, Ordering::Relaxed);
    }

    /// Returns what the owner has noted.
    #[inline(always)] // One load.
    pub fn noted(&self) -> u32 {
        // Relaxed, as in `note`.
        self.note.load(Ordering::Relaxed)
    }

    /// Takes all reasons, leaving none. The owner then looks at each source, and reads the word again.
    pub fn take(&self) -> Reasons {
        // Acquire: pairs with `post`. The sources must be looked at after this, never before: a source looked at
        // first could change, and its reason be taken here unseen. Acquire forbids that order, too.
        Reasons::from_bits_retain(self.word.swap(0, Ordering::Acquire))
    }

    /// Takes the given reasons only, and says which of them were set. The others stay, and keep posters from
    /// kicking: the owner must not enter the guest before it has taken them, too.
    pub fn take_only(&self, reasons: Reasons) -> Reasons {
        // Acquire, for the same reason as in `take`.
        let before = self.word.fetch_and(!reasons.bits(), Ordering::Acquire);
        Reasons::from_bits_retain(before) & reasons
    }

    /// Records that the vCPU is now resident on the physical CPU with `token`, which owns it from here on. It must
    /// read the word before it enters the guest, as always. Not for a parked vCPU: it is woken first. Waits for a claim,
    /// which is short.
    pub fn load(&self, token: KickToken) {
        // Acquire: pairs with the release of a claim, and with `put` on another CPU.
        while self.residence.compare_exchange(QUEUED, token, Ordering::Acquire, Ordering::Relaxed).is_err() {
            crate::sync::relax();
        }
        // Pairs with the fence in `post`.
        fence(Ordering::SeqCst);
    }

    /// Records that the vCPU is in no CPU, and that some run queue has it. Posts are kept in the word until it is
    /// loaded again.
    pub fn put(&self) {
        // Release: who takes it from the queue on another CPU, or wakes it, sees its state as it was left.
        self.residence.store(QUEUED, Ordering::Release);
        // Pairs with the fence in `post`: a poster that still reads the old residence kicks there, one exit too
        // many; a poster that reads the new one has its reason seen by whoever loads the vCPU.
        fence(Ordering::SeqCst);
    }

    /// Records that the vCPU is in no CPU and waits for something to be posted, after its state was put away. False
    /// if something has been already: then it is queued, and the caller has it.
    #[must_use = "a vCPU that is not parked has to run on"]
    pub fn park(&self) -> bool {
        self.residence.store(PARKED, Ordering::Release);
        // Pairs with the fence in `post`: a poster reads PARKED, or this reads its reason, or both; then one of the
        // two exchanges succeeds.
        fence(Ordering::SeqCst);
        self.word.load(Ordering::Relaxed) == 0 || self.unpark() != Posted::Wake
    }

    /// Takes a parked vCPU back because its time has come: true if nobody has woken it meanwhile, and the caller has
    /// it now. Otherwise whoever woke it, or uses its state just now, sees [`Reasons::DEADLINE`].
    pub fn wake(&self) -> bool {
        self.post(Reasons::DEADLINE) == Posted::Wake
    }

    /// Claims the state of a vCPU that is in no CPU, for a short operation that waits for nothing. `None` if it is
    /// resident, or claimed already.
    pub fn claim(&self) -> Option<Claim> {
        for (from, to) in [(PARKED, CLAIMED_PARKED), (QUEUED, CLAIMED_QUEUED)] {
            // Acquire: pairs with `put`, `park` and the release of other claims: its state is as it was left.
            if self.residence.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(Claim(from));
            }
        }
        None
    }

    /// Gives up a claim. [`Posted::Wake`] if something was posted meanwhile: then the caller has to do what a poster
    /// does.
    pub fn release(&self, Claim(was): Claim) -> Posted {
        // Release: whoever has it next sees what was done to its state.
        self.residence.store(was, Ordering::Release);
        // Pairs with the fence in `post`, as in `park`.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) == 0 { Posted::Seen } else { self.unpark() }
    }

    /// Returns the token of the physical CPU where the vCPU is resident.
    pub fn residence(&self) -> Option<KickToken> {
        let residence = self.residence.load(Ordering::Relaxed);
        (residence < CLAIMED_QUEUED).then_some(residence)
    }
}
