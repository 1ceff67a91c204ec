// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of a VM: what reaches all of its vCPUs.

use turnstile_exitstat::Page;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Stop;

use super::objects::Vm;

impl Vm {
    /// Raises attention with every vCPU.
    pub fn raise_all(&self, reasons: Reasons) {
        for vcpu in self.vcpus() {
            vcpu.post(reasons);
        }
    }

    /// Forgets what its exits cost, for a new life. Only while no vCPU runs: [`Reasons::START`] lets them write again.
    pub fn reset_statistics(&self) {
        self.vcpus().iter().filter_map(|vcpu| vcpu.statistics).for_each(Page::clear);
    }

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

    /// Begins to stop the VM, if it runs.
    pub fn stop(&self, reason: Stop) {
        if self.lifecycle.begin_stop(reason) {
            self.raise_all(Reasons::STOP);
        }
    }
}
