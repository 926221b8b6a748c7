-- KEYS: ready, processing, deadlines. ARGV: now, lease, batch (-1 = all). Gives how many moved.
return sweep(KEYS[1], KEYS[2], KEYS[3], ARGV[3])
