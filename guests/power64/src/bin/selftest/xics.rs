// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XICS (LoPAR, section 14.5).

use turnstile_guests_power64::hcall::{self, call, call4};
use turnstile_guests_power64::platform::{Controller, platform};
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{check, check_eq, skip, smp};

pub const TESTS: &[Test] = &[
    Test { name: "xics-priority", run: priority },
    Test { name: "xics-poll", run: poll },
    Test { name: "xics-nested", run: nested },
    Test { name: "xics-wrong", run: wrong },
];

fn need_xics() -> Outcome {
    if platform().controller != Controller::Xics {
        skip!("no XICS");
    }
    Ok(())
}

fn server() -> u64 {
    u64::from(smp::server(0))
}

fn accept() -> u64 {
    call4(hcall::XIRR, [0xff, 0, 0, 0]).1[0] & 0xffff_ffff
}

/// A request is presented if it is more favored than the CPU's priority: a smaller number.
fn priority() -> Outcome {
    need_xics()?;
    for (current, request, presented) in
        [(0xff, 4, true), (4, 4, false), (5, 4, true), (0, 0, false), (1, 0, true)]
    {
        call(hcall::CPPR, [current, 0, 0, 0]);
        call(hcall::IPI, [server(), request, 0, 0]);
        let xirr = accept();
        let expected = if presented { current << 24 | 2 } else { current << 24 };
        check_eq!(xirr, expected, "request {request} at priority {current}: XIRR");
        call(hcall::IPI, [server(), 0xff, 0, 0]);
        if presented {
            // The priority is that of what is in service, until its end.
            let (_, [polled, ..]) = call4(hcall::IPOLL, [server(), 0, 0, 0]);
            check_eq!(polled >> 24 & 0xff, request, "the priority in service");
            call(hcall::EOI, [xirr, 0, 0, 0]);
        }
    }
    call(hcall::CPPR, [0xff, 0, 0, 0]);
    check_eq!(accept(), 0xff00_0000, "XIRR at the end");
    Ok(())
}

/// H_IPOLL tells without accepting.
fn poll() -> Outcome {
    need_xics()?;
    call(hcall::IPI, [server(), 7, 0, 0]);
    for _ in 0..3 {
        let (status, [xirr, mfrr, ..]) = call4(hcall::IPOLL, [server(), 0, 0, 0]);
        check_eq!(status, hcall::SUCCESS, "the status");
        check_eq!(xirr & 0xff_ffff, 2, "the source");
        check_eq!(mfrr & 0xff, 7, "the request");
    }
    let xirr = accept();
    check_eq!(xirr, 0xff00_0002, "XIRR");
    call(hcall::IPI, [server(), 0xff, 0, 0]);
    call(hcall::EOI, [xirr, 0, 0, 0]);
    Ok(())
}

/// A more favored request is presented while one is in service, and both end.
fn nested() -> Outcome {
    need_xics()?;
    call(hcall::IPI, [server(), 9, 0, 0]);
    let outer = accept();
    call(hcall::IPI, [server(), 3, 0, 0]);
    let inner = accept();
    check_eq!(inner, 9 << 24 | 2, "XIRR of the inner one");
    call(hcall::IPI, [server(), 0xff, 0, 0]);
    call(hcall::EOI, [inner, 0, 0, 0]);
    check_eq!(accept(), 9 << 24, "XIRR between the ends");
    call(hcall::EOI, [outer, 0, 0, 0]);
    check_eq!(accept(), 0xff00_0000, "XIRR at the end");
    Ok(())
}

fn wrong() -> Outcome {
    need_xics()?;
    check!(call(hcall::IPI, [0xdead, 4, 0, 0]) < 0, "H_IPI to nobody succeeds");
    check!(call(hcall::IPOLL, [0xdead, 0, 0, 0]) < 0, "H_IPOLL of nobody succeeds");
    // The end of a source that is none: whatever it answers, it does no harm.
    call(hcall::EOI, [0xff00_dead, 0, 0, 0]);
    check_eq!(accept(), 0xff00_0000, "XIRR");
    Ok(())
}
