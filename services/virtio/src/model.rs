// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a device is and does.

use turnstile_virtio::config::Configuration;
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};

/// The driver has broken a rule: the device needs a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// Why [`Model::serve`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// All is done, and the driver notifies when there is more.
    Idle,
    /// There is more to do.
    More,
}

/// What a call has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the driver may wait for an interrupt"]
pub struct Served {
    /// The driver wants an interrupt of the queue.
    pub interrupt: bool,
    /// Why it has returned.
    pub rest: Rest,
}

/// A device with `Q` queues.
pub trait Model<const Q: usize>: 'static {
    /// Its configuration.
    type Configuration: Configuration;
    /// What it is.
    const KIND: Kind;
    /// The largest sizes of its queues. Those of size 0 at the end are not there.
    const SIZES: [u16; Q];
    /// Features that a driver may accept only with others.
    const REQUIREMENTS: &'static [Requirement];

    /// What it offers.
    fn features(&self) -> Features;

    /// The largest sizes of its queues, if they are not always the same.
    fn sizes(&self) -> [u16; Q] {
        Self::SIZES
    }

    /// Its configuration after a reset.
    fn configuration(&self) -> Self::Configuration;

    /// What the driver has written to the configuration, for who keeps it over a crash.
    fn written(configuration: &Self::Configuration) -> u64 {
        let _ = configuration;
        0
    }

    /// Writes that again. Any word will do.
    fn write_again(configuration: &mut Self::Configuration, written: u64) {
        let _ = (configuration, written);
    }

    /// Driver and device have agreed on features, or the driver has written to the configuration.
    fn agree(&mut self, features: Features, configuration: &Self::Configuration);

    /// Whether there is more to do for this queue only when the VM's vCPUs have had a turn, or another queue is done: before that it would be in vain.
    fn waits(&self, number: u16) -> bool {
        let _ = number;
        false
    }

    /// Says whether nothing is at work any more for queues that were forgotten. Until then a reset has not ended: the memory of these is not the driver's
    /// again (virtio 1.2, section 4.1.4.3.2).
    fn is_settled(&self) -> bool {
        true
    }

    /// Forgets a queue, if it has it: its memory is the driver's again, as soon as [nothing is at work](Model::is_settled).
    fn forget(&mut self, number: u16);
}

/// A device that reaches such memory.
pub trait Serves<const Q: usize, M>: Model<Q> {
    /// Takes over a queue that the driver has enabled. If an earlier life `left` it, takes it up at its used index; then the first
    /// [`Serves::serve`] asks for an interrupt, which that life may have owed.
    ///
    /// # Errors
    /// When the driver has broken a rule.
    fn begin(
        &mut self,
        number: u16,
        memory: &M,
        layout: Layout,
        options: Options,
        left: bool,
    ) -> Result<(), Broken>;

    /// Does what the driver wants of a queue, for as long as the budget lasts: about as many bytes to copy, or as much work as that.
    ///
    /// # Errors
    /// When the driver has broken a rule.
    fn serve(&mut self, number: u16, memory: &M, budget: &mut u32) -> Result<Served, Broken>;
}
