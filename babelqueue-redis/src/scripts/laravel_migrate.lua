-- KEYS: ready, reserved, notify, delayed. ARGV: now, lease, batch (-1 = all). Gives how many moved.
return migrate_all(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[3])
