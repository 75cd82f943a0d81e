import resource

from braidlog.storage.log.descriptors import idle_handles_max


def test_idle_files_take_a_share_of_the_descriptors_of_the_process():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for most, expected in ((400, 100), (min(before[1], 4096), 512)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
            assert idle_handles_max() == min(expected, most // 4)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
