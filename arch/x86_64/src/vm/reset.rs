// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resets of a VM's processors: what reaches all of its vCPUs.

use turnstile_vm::attention::Reasons;

use super::objects::Vm;

impl Vm {
    /// Processor `index` has the chip set reset all of them: it has shut down, or written to a port. `resumes` does what the
    /// firmware does with the shutdown code. Says whether the machine begins from the beginning. Of several processors that do that
    /// at once the first decides, if all call this under one lock: the others have got its INIT, and do nothing any more.
    #[must_use = "a machine that begins from the beginning has to be stopped"]
    pub fn reset_by(&self, index: usize, resumes: impl FnOnce() -> bool) -> bool {
        if !self.startup.is_on(index) {
            // Whoever has sent the INIT may not have said so yet.
            if let Some(vcpu) = self.vcpu(index) {
                vcpu.attention.raise(Reasons::INIT);
            }
            return false;
        }
        let resumes = resumes();
        if resumes {
            self.reset_processors();
        }
        !resumes
    }

    /// Sends an INIT to all vCPUs, as the chip set's reset of the processors does, and lets the first one go on where its guest has
    /// told the firmware to.
    pub fn reset_processors(&self) {
        for (index, vcpu) in self.vcpus().iter().enumerate() {
            if self.startup.init(index) {
                vcpu.post(Reasons::INIT);
            }
        }
        if let Some(first) = self.vcpu(0)
            && self.startup.resume(0)
        {
            first.post(Reasons::START);
        }
    }
}
