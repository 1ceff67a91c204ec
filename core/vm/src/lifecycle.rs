// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a VM: created, running, stopping, stopped, and running again.
//!
//! ```text
//!  Created ──start──► Running ──begin_stop──► Stopping ──last acknowledge, finish──► Stopped
//!                        ▲                                                              │
//!                        └───────────────────────────── start ──────────────────────────┘
//! ```
//! Whoever wants a VM to stop calls [`Lifecycle::begin_stop`]; of several, the first decides the reason. It then
//! raises the attention of all vCPUs. Each vCPU leaves its guest for good, puts what it holds, acknowledges and
//! waits in its idle loop. The one that acknowledges last is alone with the VM: it tears down, scrubs, and
//! starts again or not, as [`Stop::next`] says.
//!
//! `finish` closes the stop first, then forgets who acknowledged it, and lets others see that the VM has stopped last: who
//! starts it then, and stops it again, finds nothing of the stop before.

use alloc::boxed::Box;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Why a VM stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The guest turned itself off.
    PowerOff,
    /// The guest asked to be reset, or somebody asked it for it.
    Reset,
    /// The guest cannot go on; the code is the caller's.
    Crash(u16),
    /// Somebody stopped it.
    Killed,
}

/// What to do when a guest has crashed (`on_crash` of the configuration).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCrash {
    /// Leave it stopped.
    Stop,
    /// Start it again.
    Restart,
}

/// What comes after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The VM stays stopped and gives its resources back.
    Stay,
    /// The VM starts again.
    Restart,
}

impl Stop {
    /// Decides what comes after this stop.
    pub fn next(self, on_crash: OnCrash) -> Next {
        match (self, on_crash) {
            (Stop::Reset, _) | (Stop::Crash(_), OnCrash::Restart) => Next::Restart,
            (Stop::PowerOff | Stop::Killed, _) | (Stop::Crash(_), OnCrash::Stop) => Next::Stay,
        }
    }

    fn encode(self) -> u32 {
        match self {
            Stop::PowerOff => 0 << 4,
            Stop::Reset => 1 << 4,
            Stop::Crash(code) => 2 << 4 | u32::from(code) << 16,
            Stop::Killed => 3 << 4,
        }
    }

    fn decode(word: u32) -> Self {
        match word >> 4 & 3 {
            0 => Stop::PowerOff,
            1 => Stop::Reset,
            2 => Stop::Crash((word >> 16) as u16),
            _ => Stop::Killed,
        }
    }
}

/// Where in its life a VM is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Never started.
    Created,
    /// Its vCPUs may run.
    Running,
    /// Its vCPUs are leaving.
    Stopping(Stop),
    /// No vCPU runs.
    Stopped(Stop),
}

const CREATED: u32 = 0;
const RUNNING: u32 = 1;
const STOPPING: u32 = 2;
const STOPPED: u32 = 3;
const PHASE: u32 = 3;
/// With [`STOPPING`]: all have acknowledged, and nobody does any more.
const CLOSED: u32 = 1 << 2;

/// The state of one VM's life.
#[derive(Debug)]
pub struct Lifecycle {
    /// The phase in bits [1:0], [`CLOSED`], the reason above.
    state: AtomicU32,
    /// One bit per vCPU that has acknowledged the stop.
    acknowledged: Box<[AtomicU64]>,
    /// How many bits are set.
    count: AtomicU32,
    boots: AtomicU32,
    vcpus: u32,
}

impl Lifecycle {
    /// Makes the life of a VM of `vcpus` vCPUs, at least one.
    pub fn new(vcpus: u32) -> Self {
        Self {
            state: AtomicU32::new(CREATED),
            acknowledged: (0..vcpus.max(1).div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU32::new(0),
            boots: AtomicU32::new(0),
            vcpus: vcpus.max(1),
        }
    }

    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        // Acquire: a vCPU that sees Running sees what was prepared before `start`.
        let state = self.state.load(Ordering::Acquire);
        match state & PHASE {
            CREATED => Phase::Created,
            RUNNING => Phase::Running,
            STOPPING => Phase::Stopping(Stop::decode(state)),
            _ => Phase::Stopped(Stop::decode(state)),
        }
    }

    /// Starts a VM that is created or stopped and fully prepared; says whether it was. Counts a boot.
    pub fn start(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        if !matches!(state & PHASE, CREATED | STOPPED) {
            return false;
        }
        // Release: pairs with `phase`. The exchange fails only if somebody else starts the VM at the same time.
        let started =
            self.state.compare_exchange(state, RUNNING, Ordering::Release, Ordering::Relaxed).is_ok();
        if started {
            self.boots.fetch_add(1, Ordering::Relaxed);
        }
        started
    }

    /// Begins to stop a running VM. True for the caller whose reason counts: it must then raise
    /// [`crate::attention::Reasons::STOP`] with every vCPU. False if the VM does not run or stops already.
    pub fn begin_stop(&self, reason: Stop) -> bool {
        let stopping = STOPPING | reason.encode();
        // Release: who sees the stop sees what led to it (a crash report, for one).
        self.state.compare_exchange(RUNNING, stopping, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Acknowledges for one vCPU that it has left its guest and touches nothing of the VM any more. `Some` for
    /// exactly one caller per stop: the last, who is then alone and goes on to [`Lifecycle::finish`]. A repeated
    /// acknowledgment, or one without a stop, does nothing.
    pub fn acknowledge(&self, vcpu: usize) -> Option<Stop> {
        let bit = 1u64 << (vcpu % 64);
        let word = self.acknowledged.get(vcpu / 64).filter(|_| vcpu < self.vcpus as usize)?;
        // First the phase, whose load acquires: who finds a stop does not find its bit as the stop before has left it.
        self.stopping()?;
        // Acquire, and the phase again behind it: who finds its own bit cleared by `finish` also finds the stop closed, and
        // does not acknowledge one that is over.
        if word.load(Ordering::Acquire) & bit != 0 {
            return None;
        }
        let reason = self.stopping()?;
        // Relaxed: the bit is this vCPU's alone.
        if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return None;
        }
        // AcqRel: release what this vCPU did, and, for the last, acquire what all others did before they acknowledged (each
        // addition continues the release sequences of those before).
        (self.count.fetch_add(1, Ordering::AcqRel) + 1 == self.vcpus).then_some(reason)
    }

    /// Ends the stop, after the teardown. For the vCPU that acknowledged last.
    pub fn finish(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state & PHASE == STOPPING {
            self.state.store(state | CLOSED, Ordering::Relaxed);
            self.count.store(0, Ordering::Relaxed);
            // Release: pairs with the load in `acknowledge`; who finds its bit cleared finds the stop closed.
            self.acknowledged.iter().for_each(|word| word.store(0, Ordering::Release));
            // Release: who sees Stopped sees the teardown done, and the stop forgotten. Starts and stops that follow change
            // the word by exchanges, which continue the release sequence: who sees one of them sees that, too.
            self.state.store(state & !PHASE | STOPPED, Ordering::Release);
        }
    }

    /// Returns why the VM stops, if it does and the stop can still be acknowledged.
    fn stopping(&self) -> Option<Stop> {
        // Acquire: as for `phase`.
        let state = self.state.load(Ordering::Acquire);
        (state & (PHASE | CLOSED) == STOPPING).then(|| Stop::decode(state))
    }

    /// Returns how often the VM was started.
    pub fn boots(&self) -> u32 {
        self.boots.load(Ordering::Relaxed)
    }
}
