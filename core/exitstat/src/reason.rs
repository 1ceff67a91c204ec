// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a guest was left, in words that fit every architecture.

use crate::kinds::kinds;

kinds! {
    /// Why a guest was left. The number is the index of its record in a [`crate::Page`].
    Reason {
        /// A call to the hypervisor.
        Hypercall = 0, "hypercall", "a call to the hypervisor: HVC, VMMCALL";
        /// A call to firmware, which the hypervisor answers.
        FirmwareCall = 1, "firmware-call", "a call to firmware: SMC";
        /// A system register that traps.
        SystemRegister = 2, "system-register", "an access to a system register that traps";
        /// A data access that the second stage of translation stops: mostly devices.
        DataAbort = 3, "data-abort", "a data access without memory behind it: devices, and first touches";
        /// An instruction fetch that the second stage of translation stops.
        InstructionAbort = 4, "instruction-abort", "an instruction fetch without memory behind it";
        /// An instruction that waits.
        Wait = 5, "wait", "an instruction that waits: WFI, WFE, HLT, PAUSE";
        /// A physical interrupt of the guest's own timer.
        TimerInterrupt = 6, "irq-timer", "a timer of the guest";
        /// A physical interrupt by which another CPU asks for attention.
        Kick = 7, "irq-kick", "a kick by another CPU: interrupts for the guest, requests";
        /// Any other physical interrupt.
        OtherInterrupt = 8, "irq-other", "any other physical interrupt: devices of the hypervisor, maintenance";
        /// An asynchronous error of the machine.
        MachineError = 9, "machine-error", "an error of the machine: SError, #MC";
        /// Not an exit: the vCPU was reset and enters its guest for the first time since.
        Start = 10, "start", "no exit: a start of the vCPU";
        /// Any other exception.
        Other = 11, "other", "any other exception";
        /// An instruction that tells what the processor is.
        Identification = 12, "cpuid", "an instruction that tells what the processor is: CPUID";
        /// A model-specific register that traps.
        ModelRegister = 13, "msr", "a model-specific register that traps: RDMSR, WRMSR";
        /// An access to a port.
        Port = 14, "port", "an access to a port: IN, OUT and their string forms";
        /// An access to the page of the local APIC.
        ApicPage = 15, "apic-page", "an access to the page of the local APIC";
        /// A write to a control or debug register that traps.
        ControlRegister = 16, "control-register", "a control or debug register that traps";
        /// An exception in the guest that traps.
        Exception = 17, "exception", "an exception in the guest that traps";
        /// A physical non-maskable interrupt.
        NonMaskable = 18, "nmi", "a physical NMI";
        /// The guest can take an interrupt that waited for it.
        InterruptWindow = 19, "irq-window", "the guest can take an interrupt that waited";
        /// An event that a service has handled: mostly an access of its device.
        Service = 20, "service", "an access that a service answered, or what came for it from elsewhere";
        /// A doorbell of a service, whether or not the service was entered for it.
        Doorbell = 21, "doorbell", "a doorbell of a service";
    }
}
