"""Pure views of what was booked: lines of a month's costs, and advice on how to spend less."""
