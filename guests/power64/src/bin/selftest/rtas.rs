// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTAS services that come back (LoPAR, chapter 7).

use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{check, check_eq, rtas, skip, smp};

pub const TESTS: &[Test] = &[
    Test { name: "rtas-time", run: time },
    Test { name: "rtas-unknown", run: unknown },
    Test { name: "rtas-display", run: display },
    Test { name: "rtas-parameter", run: parameter },
    Test { name: "rtas-cpu-state", run: cpu_state },
];

fn time() -> Outcome {
    let (status, [year, month, day, hour, minute, second, _]) =
        rtas::call::<7>(platform().tokens.get_time, &[]);
    check_eq!(status, 0, "get-time-of-day");
    let good = (1970..2200).contains(&year) && (1..13).contains(&month) && (1..32).contains(&day);
    check!(good && hour < 24 && minute < 60 && second < 61, "{year}-{month}-{day} {hour}:{minute}:{second}");
    if platform().tokens.set_time.is_none() {
        skip!("no set-time-of-day");
    }
    let (status, []) = rtas::call::<0>(platform().tokens.set_time, &[2031, 5, 17, 3, 4, 5, 0]);
    check_eq!(status, 0, "set-time-of-day");
    let (_, [year, month, day, ..]) = rtas::call::<7>(platform().tokens.get_time, &[]);
    check!([year, month, day] == [2031, 5, 17], "{year}-{month}-{day} after 2031-5-17 was set");
    Ok(())
}

/// Tokens of nobody, and numbers of arguments that no service has, have a status that is no success.
fn unknown() -> Outcome {
    for token in [0xdead, u32::MAX, 0x7fff] {
        let (status, [_]) = rtas::call::<1>(Some(token), &[1, 2]);
        check!(status < 0, "token {token:#x}: status {status}");
    }
    let (status, []) = rtas::call::<0>(platform().tokens.get_time, &[1, 2, 3]);
    check!(status < 0, "get-time-of-day with other arguments: status {status}");
    Ok(())
}

fn display() -> Outcome {
    if platform().tokens.display.is_none() {
        skip!("no display-character");
    }
    for character in "  by RTAS\r\n".bytes() {
        let (status, []) = rtas::call::<0>(platform().tokens.display, &[u32::from(character)]);
        check_eq!(status, 0, "display-character");
    }
    Ok(())
}

fn parameter() -> Outcome {
    if platform().tokens.get_parameter.is_none() {
        skip!("no ibm,get-system-parameter");
    }
    // A parameter that nobody has: "not supported".
    let (status, []) =
        rtas::call::<0>(platform().tokens.get_parameter, &[0xffff, crate::scratch() as u32, 64]);
    check!(status < 0, "parameter 0xffff: status {status}");
    Ok(())
}

fn cpu_state() -> Outcome {
    check_eq!(smp::state(0), 2, "of the CPU that runs this");
    let (status, [_]) = rtas::call::<1>(platform().tokens.query_stopped, &[0xdead]);
    check!(status < 0, "of a CPU that is not there: status {status}");
    for index in smp::others() {
        check_eq!(smp::state(index), 0, "of CPU {index}");
    }
    Ok(())
}
