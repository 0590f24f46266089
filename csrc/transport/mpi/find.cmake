# Target `mpi`: mpi.h and the C library of the MPI whose mpicc is MPI_C_COMPILER. MPI_GDR_MPI_LIBRARY_DIRS: where it is.
set(sentence "CMake builds no MPI program with ${MPI_C_COMPILER}: set MPICC to the mpicc of an MPI installation that works.")
set(MPI_GDR_PROBLEM "${sentence}" CACHE INTERNAL "For setup.py")  # find_package() ends the build by itself, too
find_package(MPI COMPONENTS C)
if(NOT MPI_C_FOUND)
  give_up("${sentence}")
endif()
unset(MPI_GDR_PROBLEM CACHE)
set(folders "")
foreach(library ${MPI_C_LIBRARIES})
  get_filename_component(folder ${library} DIRECTORY)
  list(APPEND folders ${folder})
endforeach()
list(REMOVE_DUPLICATES folders)
set(MPI_GDR_MPI_LIBRARY_DIRS "${folders}" CACHE INTERNAL "For setup.py")
list(TRANSFORM folders PREPEND "-Wl,-rpath,")

add_library(mpi INTERFACE)
target_include_directories(mpi SYSTEM INTERFACE ${MPI_C_INCLUDE_DIRS})
target_compile_definitions(mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
target_link_libraries(mpi INTERFACE ${MPI_C_LIBRARIES})
# DT_RUNPATH, not DT_RPATH: LD_LIBRARY_PATH must be able to choose another MPI of the same ABI.
target_link_options(mpi INTERFACE -Wl,--enable-new-dtags ${folders})
