// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted besides exits: what a hypervisor did for its guest, or saved it.

use crate::kinds::kinds;

kinds! {
    /// Something that is counted. The number is the index of its count in a [`crate::Page`].
    ///
    /// Events are counted on the page of the vCPU in whose exit they happen.
    Event {
        /// An interrupt was given to the guest.
        Injected = 0, "injected", "an interrupt was given to the guest";
        /// An exception was given to the guest.
        InjectedException = 1, "injected-exception", "an exception was given to the guest";
        /// An NMI was given to the guest.
        InjectedNmi = 2, "injected-nmi", "an NMI was given to the guest";
        /// The interrupt controller of the vCPU accepted an interrupt that it did not hold yet.
        Accepted = 3, "accepted", "the local APIC accepted an interrupt";
        /// The guest sent an interrupt to a vCPU.
        Ipi = 4, "ipi", "the guest sent an interrupt to vCPUs";
        /// A register of the local APIC was read, in its page or as an MSR.
        ApicRead = 5, "apic-read", "a register of the local APIC was read";
        /// A register of the local APIC was written, in its page or as an MSR.
        ApicWrite = 6, "apic-write", "a register of the local APIC was written";
        /// An interrupt was ended by a write to an MSR.
        EoiMsr = 7, "eoi-msr", "an interrupt was ended by a write to an MSR";
        /// An interrupt was ended by a write to the local APIC's page.
        EoiPage = 8, "eoi-page", "an interrupt was ended by a write to the local APIC's page";
        /// The guest was told that an interrupt needs no EOI.
        PvEoiOffered = 9, "pv-eoi-offered", "the guest was told that an interrupt needs no EOI";
        /// An interrupt was ended by the guest without an exit.
        PvEoi = 10, "pv-eoi", "an interrupt was ended without an exit";
        /// A model-specific register was read in an exit.
        MsrRead = 11, "msr-read", "a model-specific register was read";
        /// A model-specific register was written in an exit.
        MsrWrite = 12, "msr-write", "a model-specific register was written";
        /// A port was read in an exit.
        PortRead = 13, "port-read", "a port was read";
        /// A port was written in an exit.
        PortWrite = 14, "port-write", "a port was written";
        /// A device in memory was read.
        MmioRead = 15, "mmio-read", "a device in memory was read";
        /// A device in memory was written.
        MmioWrite = 16, "mmio-write", "a device in memory was written";
        /// An instruction was decoded by software.
        Decoded = 17, "decoded", "an instruction was decoded by software";
        /// The decoded form of an instruction was still known.
        DecodedBefore = 18, "decoded-before", "the decoded form of an instruction was still known";
        /// A line of the 8259s rose: on the page of the VM's first vCPU, whoever raised it.
        PicRaised = 19, "pic-raised", "a line of the 8259s rose";
        /// A line of the I/O APIC rose: on the page of the VM's first vCPU, whoever raised it.
        IoApicRaised = 20, "io-apic-raised", "a line of the I/O APIC rose";
        /// The I/O APIC was told that a level-triggered interrupt has ended.
        IoApicEoi = 21, "io-apic-eoi", "the I/O APIC was told of an end of an interrupt";
        /// The timer of the vCPU went off.
        Timer = 22, "timer", "the timer of the vCPU went off";
        /// Another vCPU was kicked.
        KickSent = 23, "kick-sent", "another vCPU was kicked";
        /// The vCPU had nothing to do, and its CPU waited or ran another one.
        Halted = 24, "halted", "the vCPU had nothing to do";
        /// A hypercall sent interrupts to several vCPUs at once.
        PvIpi = 25, "pv-ipi", "a hypercall sent interrupts to several vCPUs at once";
        /// A flush of a vCPU's translations was left to its next entry.
        PvTlbFlush = 26, "pv-tlb-flush", "a flush of translations was left to the next entry";
        /// Floating-point and vector state was loaded.
        FpLoaded = 27, "fp-loaded", "floating-point and vector state was loaded";
        /// A block of memory was cleared and mapped, because the guest touched it first.
        FirstTouch = 28, "first-touch", "a block of memory was cleared and mapped";
    }
}
