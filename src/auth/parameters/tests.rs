//! What clients send is read, what two readers could see differently is not.

use super::*;
