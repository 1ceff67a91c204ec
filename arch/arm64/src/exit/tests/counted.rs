// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statistics: what they note, and that they change nothing else.

use turnstile_exitstat::{Reason, record_offset};

use super::machine::machine_with;
use super::*;
use crate::time;
use crate::vcpu::statistics;

#[test]
fn statistics_change_no_access_of_an_interrupt() {
    let expected = [
        (27, Reason::TimerInterrupt),
        (0, Reason::Kick),
        (33, Reason::OtherInterrupt),
        (1023, Reason::OtherInterrupt),
    ];
    for (intid, reason) in expected {
        let outcome = |handler: extern "C" fn(&mut Frame) -> u32, statistics| {
            let (_, mut frame) = machine_with(1, false, statistics);
            fakes::set("ICC_IAR1_EL1", intid);
            (handler(&mut frame), fakes::take_log(), frame.timing.record)
        };
        let (code, log, _) = outcome(turnstile_light_irq, false);
        let (timed_code, timed_log, record) = outcome(turnstile_light_irq_timed, true);
        assert_eq!((timed_code, timed_log), (code, log), "INTID {intid}");
        assert_eq!(record, record_offset(reason) as u64, "INTID {intid}");
    }
}

#[test]
fn exception_classes_have_their_records() {
    let record = |class: u64| usize::from(statistics::EXIT_RECORDS[class as usize]);
    let expected = [
        (class::HVC64, Reason::Hypercall),
        (class::SMC64, Reason::FirmwareCall),
        (class::SYSTEM_REGISTER, Reason::SystemRegister),
        (class::DATA_ABORT, Reason::DataAbort),
        (class::INSTRUCTION_ABORT, Reason::InstructionAbort),
        (class::WFX, Reason::Wait),
        (0, Reason::Other),
        (63, Reason::Other),
    ];
    expected.into_iter().for_each(|(class, reason)| assert_eq!(record(class), record_offset(reason)));
    let (_, mut frame) = machine_with(1, false, true);
    turnstile_light_fiq_timed(&mut frame);
    assert_eq!(frame.timing.record, record_offset(Reason::OtherInterrupt) as u64);
    assert_eq!(turnstile_light_serror_timed(&mut frame), Code::SERROR);
    assert_eq!(frame.timing.record, record_offset(Reason::MachineError) as u64);
}

#[test]
fn an_exit_that_leads_nowhere_ends_and_waiting_is_not_its_cost() {
    let (vm, mut frame) = machine_with(1, false, true);
    let vcpu = vm.vcpus()[0];
    let read = |reason| vcpu.statistics.expect("they are kept").record(reason).read();
    fakes::set("CNTPCT_EL0", 1000);
    frame.timing.begin(Reason::Hypercall, time::ticks);
    frame.timing.without(time::ticks, || fakes::set("CNTPCT_EL0", 9000));
    fakes::set("CNTPCT_EL0", 9030);
    frame.timing.end(time::ticks);
    assert_eq!((read(Reason::Hypercall).count(), read(Reason::Hypercall).total), (1, 30));
    assert_eq!(read(Reason::Start).count(), 0);
    vm.reset_statistics();
    assert_eq!(read(Reason::Hypercall).count(), 0);
}

#[test]
fn without_statistics_no_counter_is_read() {
    let (_, mut frame) = machine(1, false);
    frame.timing.begin(Reason::Start, time::ticks);
    frame.timing.without(time::ticks, || {});
    frame.timing.end(time::ticks);
    assert_eq!(fakes::take_log(), []);
}
