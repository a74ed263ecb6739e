-- The marks that the '@lockdog' of a lock may begin with, as bytes: see acquire.lua.
local waitMark, fairMark = 43, 126 -- '+': others wait; after it '~': some of them for a FairMutex
